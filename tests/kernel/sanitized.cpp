// Calls the kernel with random shapes in buffers of exactly their size, from several threads, and compares the result
// with a plain search. test_sanitizers.py builds it with sanitizers and defines the path of kernel.cpp.
#include KERNEL

#include <cmath>
#include <cstdio>
#include <random>

namespace {

std::mt19937 generator(7);

int between_ints(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); }

// Integer features, so that sums are exact in any order, with the identity as rotation.
struct Features {
    int rows, columns, channels, stages = 1;
    std::vector<float> cells, turned;

    Features(int rows_, int columns_, int channels_) : rows(rows_), columns(columns_), channels(channels_) {
        for (int end = FIRST_STAGE; end < channels; end *= 2) ++stages;
        cells.resize(size_t(rows) * columns * channels);
        for (float& value : cells) value = float(between_ints(-3, 3));
        const int panels = (columns + PANEL - 1) / PANEL, values = channels + stages;
        turned.assign(size_t(rows) * panels * values * PANEL, 0.0f);
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x) {
                const float* cell = &cells[(size_t(y) * columns + x) * channels];
                float* at = &turned[((size_t(y) * panels + x / PANEL) * values) * PANEL + x % PANEL];
                for (int c = 0; c < channels; ++c) at[size_t(c) * PANEL] = cell[c];
                for (int stage = 0; stage < stages; ++stage) {
                    const int end = stage + 1 < stages ? FIRST_STAGE << stage : channels;
                    float rest = 0;
                    for (int c = end; c < channels; ++c) rest += cell[c] * cell[c];
                    at[size_t(channels + stage) * PANEL] = std::sqrt(rest) + 0.01f;
                }
            }
    }

    Map map() const { return Map{cells.data(), turned.data(), rows, columns, channels, stages}; }

    const float* cell(int64_t index) const { return &cells[size_t(index) * channels]; }
};

bool try_search() {
    const int channels = between_ints(1, 80), k = between_ints(1, 12), threads = between_ints(1, 4);
    const Features query(between_ints(1, 9), between_ints(1, 40), channels);
    std::vector<Features> keys;
    std::vector<std::vector<int32_t>> reaches;
    for (int i = between_ints(1, 3); i > 0; --i) {
        keys.emplace_back(between_ints(1, 9), between_ints(1, 40), channels);
        reaches.emplace_back();
        for (int row = between_ints(0, 5); row > 0; --row) reaches.back().push_back(between_ints(0, 45));
    }
    std::vector<Reference> references;
    int64_t first = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
        references.push_back({keys[i].map(), reaches[i].data(), int32_t(reaches[i].size()), first});
        first += int64_t(keys[i].rows) * keys[i].columns;
    }
    const Map map = query.map();
    const size_t queries = size_t(query.rows) * query.columns;
    std::vector<float> score(queries * k);
    std::vector<int64_t> index(queries * k);
    std::vector<int32_t> distance(queries * k);
    search(&map, references.data(), int32_t(references.size()), k, threads, score.data(), index.data(),
           distance.data());
    for (size_t q = 0; q < queries; ++q) {
        float best = -std::numeric_limits<float>::infinity();
        for (const Reference& reference : references)
            for (int v = 0; v < reference.map.rows; ++v)
                for (int u = 0; u < reference.map.columns; ++u) {
                    const int dy = std::abs(v - int(q) / query.columns), dx = std::abs(u - int(q) % query.columns);
                    if (reference.reach_rows && (dy >= reference.reach_rows || dx > reference.reach[dy])) continue;
                    float sum = 0;
                    for (int c = 0; c < channels; ++c)
                        sum += query.cell(int64_t(q))[c] *
                               reference.map.cells[(size_t(v) * reference.map.columns + u) * channels + c];
                    best = std::max(best, sum);
                }
        if (score[q * k] != best) return false;
    }
    return true;
}

bool try_vote() {
    const int64_t queries = between_ints(1, 600), cells = between_ints(1, 50);
    const int votes = between_ints(1, 12), channels = between_ints(1, 9), maps = between_ints(1, 4);
    std::vector<std::vector<float>> labels(maps, std::vector<float>(size_t(cells) * channels));
    for (auto& label : labels)
        for (float& value : label) value = float(between_ints(0, 4));
    std::vector<const float*> places;
    for (const auto& label : labels) places.push_back(label.data());
    std::vector<int64_t> index(size_t(queries) * votes);
    std::vector<float> weight(index.size()), result(size_t(queries) * channels);
    for (int64_t& place : index) place = between_ints(0, int(cells) * maps - 1);
    for (float& share : weight) share = float(between_ints(0, 3));
    vote(index.data(), weight.data(), queries, votes, places.data(), cells, channels, between_ints(1, 4),
         result.data());
    const int64_t last = queries - 1;
    float sum = 0;
    for (int i = 0; i < votes; ++i) {
        const int64_t place = index[last * votes + i];
        sum += weight[last * votes + i] * labels[place / cells][(place % cells) * channels];
    }
    return result[last * channels] == sum;
}

struct Axis {
    std::vector<int64_t> low, high;
    std::vector<float> weight;
    Axis(int cells, int pixels) {
        for (int p = 0; p < pixels; ++p) {
            const float place = std::min(float(p) * cells / pixels, float(cells - 1));
            low.push_back(int64_t(place));
            high.push_back(std::min(int64_t(place) + 1, int64_t(cells) - 1));
            weight.push_back(place - float(low.back()));
        }
    }
    Taps taps() const { return Taps{low.data(), high.data(), weight.data(), int32_t(low.size())}; }
};

bool try_decide() {
    const int rows = between_ints(1, 9), columns = between_ints(1, 9), channels = between_ints(1, 12);
    const Axis y(rows, between_ints(1, 60)), x(columns, between_ints(1, 60));
    std::vector<float> soft(size_t(rows) * columns * channels);
    for (float& value : soft) value = float(between_ints(0, 2));
    std::vector<int32_t> winner(y.low.size() * x.low.size());
    const Taps down = y.taps(), across = x.taps();
    decide(soft.data(), columns, channels, &down, &across, between_ints(1, 4), winner.data());
    return std::all_of(winner.begin(), winner.end(), [&](int32_t c) { return c >= 0 && c < channels; });
}

bool try_guided() {
    const int label_rows = between_ints(1, 12), label_columns = between_ints(1, 12), channels = between_ints(1, 6);
    const int radius = between_ints(1, 4), threads = between_ints(1, 4), parts = between_ints(1, 2);
    const int rows = label_rows * parts, columns = label_columns * parts;
    const Axis fine_y(label_rows, rows), fine_x(label_columns, columns);
    const Axis y(rows, between_ints(rows, 60)), x(columns, between_ints(columns, 60));
    const int height = int(y.low.size()), width = int(x.low.size());
    std::vector<uint8_t> image(size_t(height) * width * 3);
    for (uint8_t& value : image) value = uint8_t(between_ints(0, 255));
    // Every cell is one pixel: enough to see whether memory is respected.
    std::vector<int64_t> first_row, first_column, begin;
    for (int i = 0; i < rows; ++i) first_row.push_back(int64_t(i) * height / rows);
    for (int i = 0; i < columns; ++i) first_column.push_back(int64_t(i) * width / columns);
    for (int i = 0; i <= std::max(rows, columns); ++i) begin.push_back(i);
    const std::vector<float> whole(std::max(rows, columns), 1.0f);
    const Areas down_areas{first_row.data(), begin.data(), whole.data(), rows};
    const Areas across_areas{first_column.data(), begin.data(), whole.data(), columns};
    std::vector<float> colours(size_t(rows) * columns * 3);
    pool_image(image.data(), width, &down_areas, &across_areas, threads, colours.data());
    const uint8_t last = image[(first_row.back() * width + first_column.back()) * 3 + 2];
    if (colours.back() != float(last) / 255.0f) return false;
    std::vector<float> values(size_t(label_rows) * label_columns * channels);
    for (float& value : values) value = float(between_ints(0, 2)) / 2;
    std::vector<int32_t> winner(size_t(height) * width);
    const Taps fine_down = fine_y.taps(), fine_across = fine_x.taps(), down = y.taps(), across = x.taps();
    decide_guided(values.data(), label_rows, label_columns, channels, parts, &fine_down, &fine_across, colours.data(),
                  radius, 1e-3f, &down, &across, image.data(), threads, winner.data());
    return std::all_of(winner.begin(), winner.end(), [&](int32_t c) { return c >= 0 && c < channels; });
}

}  // namespace

int main() {
    for (int round = 0; round < 60; ++round)
        if (!try_search() || !try_vote() || !try_decide() || !try_guided()) {
            std::printf("round %d is wrong\n", round);
            return 1;
        }
    std::puts("60 rounds");
    return 0;
}
