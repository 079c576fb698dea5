// Top-k search, weighted votes and decoding of label maps: where propagation spends its time besides encoding. Plain C
// functions, so that the library does not depend on the version of Python or torch.
//
// The build compiles this file into one library per instruction set, with LANES floats per vector. The libraries are
// separate because the linker would otherwise keep one copy of shared functions, compiled for any of the processors.
//
// The search is exact and skips most of its work. Features are also passed rotated to their principal axes (`turned`),
// with the norm of what remains of each after the first 32, 64, 128 ... axes. By Cauchy-Schwarz, a score is at most the
// dot product over these axes plus the product of the remaining norms. The score is computed only if this bound reaches
// the k-th best so far, and always by the same function of the original features (`product`): equal cells have equal
// scores, and the result does not depend on axes, tiles, lanes or threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#ifndef SOURCE
#define SOURCE 0  // the build sets it to the checksum of this file
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// A vector of floats that can be loaded from any address.
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// A tile is ROWS rows of LANES queries. OFFSETS key vectors are scored against it at once: as many as fit in registers.
constexpr int ROWS = 3;
constexpr int OFFSETS = LANES == 16 ? 8 : 3;
constexpr int PANEL = 16;  // columns stored together, independently of the number of lanes
constexpr int FIRST_STAGE = 32;  // axes before bounds are first checked, then twice as many, and so on
constexpr int PAIRS_PER_AXIS = 32;  // axes of one key vector, for all its pairs, that take the time of one product
constexpr int FAR = 1 << 20;  // more than any column: added so that columns left of the map divide like others

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }

// Makes the compiler keep a vector in a register: it would load it again for every row, and an unaligned load costs
// more than the multiplication.
void keep(Vector& vector) {
#if defined(__AVX512F__)
    asm("" : "+v"(vector));
#elif defined(__x86_64__)
    asm("" : "+x"(vector));
#else
    (void)vector;
#endif
}

// Bit i is set where lane i of `score` is at least that of `threshold`.
uint32_t at_least(Vector score, Vector threshold) {
#if LANES == 16
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(score), reinterpret_cast<__m512>(threshold), _CMP_GE_OQ);
#elif LANES == 8
    return _mm256_movemask_ps(
        _mm256_cmp_ps(reinterpret_cast<__m256>(score), reinterpret_cast<__m256>(threshold), _CMP_GE_OQ));
#else
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; ++lane) bits |= static_cast<uint32_t>(score[lane] >= threshold[lane]) << lane;
    return bits;
#endif
}

template <typename Work>
void in_parallel(int threads, int64_t parts, Work work) {
    std::atomic<int64_t> next{0};
    auto take = [&] {
        for (int64_t part; (part = next.fetch_add(1)) < parts;) work(part);
    };
    std::vector<std::thread> helpers;
    try {
        for (int i = 1; i < threads && i < parts; ++i) helpers.emplace_back(take);
    } catch (const std::system_error&) {
        // No more threads can be started: the existing ones do all the work.
    }
    take();
    for (auto& helper : helpers) helper.join();
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- searching

extern "C" {

// A feature map. The rotated features `turned` are stored in panels of PANEL neighbouring columns, padded with zeros:
// [row][panel][channels + stages][PANEL]. The last `stages` values of a cell are the norms of what remains of it after
// each stage, with a margin for rounding.
struct Map {
    const float* cells;  // [row][column][channels]
    const float* turned;
    int32_t rows, columns, channels, stages;
};

// A reference and its window: |dx| <= reach[|dy|] for |dy| < reach_rows, or the whole map if reach_rows is 0.
struct Reference {
    Map map;
    const int32_t* reach;
    int32_t reach_rows;
    int64_t first_index;  // index of its first cell among the cells of all references
};

}  // extern "C"

namespace {

struct Candidate {
    float score;
    int32_t distance;  // squared, in cells
    int64_t index;
};

constexpr Candidate NOBODY{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int64_t>::max()};

// The higher score wins; then the nearer cell, then the lower index.
bool better(const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.distance != b.distance) return a.distance < b.distance;
    return a.index < b.index;
}

int panels(const Map& map) { return (map.columns + PANEL - 1) / PANEL; }

const float* panel(const Map& map, int64_t row, int64_t place) {
    return map.turned + (row * panels(map) + place) * (map.channels + map.stages) * PANEL;
}

const float* cell(const Map& map, int64_t index) { return map.cells + index * map.channels; }

// The score of a pair: sixty-four parallel sums, added in one order for all vector widths.
float product(const float* a, const float* b, int channels) {
    typedef float Sixteen __attribute__((vector_size(64), aligned(4), may_alias));
    typedef float Four __attribute__((vector_size(16)));
    const auto at = [](const float* from) { return *reinterpret_cast<const Sixteen*>(from); };
    Sixteen first = {}, second = {}, third = {}, fourth = {};
    int c = 0;
    for (; c + 64 <= channels; c += 64) {
        first += at(a + c) * at(b + c);
        second += at(a + c + 16) * at(b + c + 16);
        third += at(a + c + 32) * at(b + c + 32);
        fourth += at(a + c + 48) * at(b + c + 48);
    }
    union {
        Sixteen sixteen;
        Four four[4];
    } sums = {(first + second) + (third + fourth)};
    const Four four = (sums.four[0] + sums.four[2]) + (sums.four[1] + sums.four[3]);
    float rest = 0;
    for (; c < channels; ++c) rest += a[c] * b[c];
    return ((four[0] + four[2]) + (four[1] + four[3])) + rest;
}

// A tile of queries with the best candidates of each so far, best first.
struct Tile {
    const Map& query;
    int top, left, k;
    std::vector<Candidate> best;
    alignas(64) float threshold[ROWS][LANES];  // the score of the k-th best; infinite for queries off the map

    Tile(const Map& query_, int top_, int left_, int k_)
        : query(query_), top(top_), left(left_), k(k_), best(ROWS * LANES * k_, NOBODY) {
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < LANES; ++lane)
                threshold[row][lane] = row < rows() && lane < columns() ? NOBODY.score : -NOBODY.score;
    }

    int rows() const { return std::min(ROWS, query.rows - top); }
    int columns() const { return std::min(LANES, query.columns - left); }

    const float* queries(int row) const {
        return panel(query, std::min(top + row, query.rows - 1), left / PANEL) + left % PANEL;
    }

    // Insert a key into the candidates of a query if it is good enough.
    void offer(int row, int lane, const Reference& reference, int64_t key, int distance) {
        const float* asking = cell(query, int64_t(top + row) * query.columns + left + lane);
        const Candidate candidate{product(asking, cell(reference.map, key), query.channels), distance,
                                  reference.first_index + key};
        Candidate* list = &best[(row * LANES + lane) * k];
        if (!better(candidate, list[k - 1])) return;
        int place = k - 1;
        for (; place > 0 && better(candidate, list[place - 1]); --place) list[place] = list[place - 1];
        list[place] = candidate;
        threshold[row][lane] = list[k - 1].score;
    }

    // Write the results of the tile into those of the whole map, [query][k].
    void write(float* score, int64_t* index, int32_t* distance) const {
        for (int row = 0; row < rows(); ++row)
            for (int lane = 0; lane < columns(); ++lane) {
                const int64_t place = (int64_t(top + row) * query.columns + left + lane) * k;
                for (int i = 0; i < k; ++i) {
                    const Candidate& found = best[(row * LANES + lane) * k + i];
                    score[place + i] = found.score;
                    index[place + i] = found.score == NOBODY.score ? 0 : found.index;
                    distance[place + i] = found.distance;
                }
            }
    }
};

// Upper bounds of the scores of a tile's rows with some key vectors.
struct Bounds {
    Vector of[ROWS][OFFSETS];
};

// LANES columns of two neighbouring vectors, from column SHIFT of the first.
template <int SHIFT, int... LANE>
Vector cut(Vector low, Vector high, std::integer_sequence<int, LANE...>) {
#if LANES == 16
    return reinterpret_cast<Vector>(
        _mm512_alignr_epi32(reinterpret_cast<__m512i>(high), reinterpret_cast<__m512i>(low), SHIFT));
#elif defined(__clang__)
    return __builtin_shufflevector(low, high, (SHIFT + LANE)...);
#else
    typedef int Places __attribute__((vector_size(4 * LANES)));
    return __builtin_shuffle(low, high, Places{(SHIFT + LANE)...});
#endif
}

// Keys of one row at increasing offsets from the queries: vector I begins SHIFT + I columns after the first of three
// neighbouring vectors. Combining two of them is faster than a load that touches two cache lines.
template <int SHIFT>
struct Beside {
    static constexpr int STEP = LANES == 16 ? 2 : 1;  // fewer counts to compile; extra results are ignored
    const float* vectors[3];
    template <int I>
    Vector at(int64_t c) const {
        constexpr int FIRST = (SHIFT + I) / LANES, REST = (SHIFT + I) % LANES;
        const Vector low = load(vectors[FIRST] + c * PANEL);
        if constexpr (REST == 0) return low;
        return cut<REST>(low, load(vectors[FIRST + 1] + c * PANEL), std::make_integer_sequence<int, LANES>());
    }
};

// Single keys, each broadcast to all lanes.
struct Everywhere {
    static constexpr int STEP = 1;
    const float* from;
    template <int I>
    Vector at(int64_t c) const {
        return Vector{} + from[c * PANEL + I];
    }
};

inline __attribute__((always_inline)) void add(Vector key, Vector above, Vector middle, Vector below, Vector& sum_above,
                                               Vector& sum_middle, Vector& sum_below) {
    keep(key);
    sum_above += above * key;
    sum_middle += middle * key;
    sum_below += below * key;
}

int among(Vector bound, const float* threshold) { return __builtin_popcount(at_least(bound, load(threshold))); }

// Bounds of the key vectors I... with every row of a tile: axes are added until few pairs can still be among the best.
template <typename Keys, int... I>
void bound(const Tile& tile, Keys keys, Bounds& bounds, std::integer_sequence<int, I...>) {
    static_assert(ROWS == 3, "written out: sums must stay in registers, and compilers give up on arrays of arrays");
    const float *above = tile.queries(0), *middle = tile.queries(1), *below = tile.queries(2);
    Vector sum_above[] = {(void(I), Vector{})...}, sum_middle[] = {(void(I), Vector{})...},
           sum_below[] = {(void(I), Vector{})...};
    int64_t c = 0;
    for (int stage = 0;; ++stage) {
        const int64_t end = std::min<int64_t>(FIRST_STAGE << stage, tile.query.channels);
        const int64_t next = std::min<int64_t>(2 * end, tile.query.channels) - end;
        for (; c < end; ++c) {
            const Vector a = load(above + c * PANEL), m = load(middle + c * PANEL), b = load(below + c * PANEL);
            (add(keys.template at<I>(c), a, m, b, sum_above[I], sum_middle[I], sum_below[I]), ...);
        }
        const int64_t rest = (tile.query.channels + stage) * PANEL;
        const Vector a = load(above + rest), m = load(middle + rest), b = load(below + rest);
        int remaining = 0;
        const auto look = [&](int i, Vector key, Vector sum_a, Vector sum_m, Vector sum_b) {
            bounds.of[0][i] = sum_a + a * key;
            bounds.of[1][i] = sum_m + m * key;
            bounds.of[2][i] = sum_b + b * key;
            remaining += among(bounds.of[0][i], tile.threshold[0]) + among(bounds.of[1][i], tile.threshold[1]) +
                    among(bounds.of[2][i], tile.threshold[2]);
        };
        (look(I, keys.template at<I>(tile.query.channels + stage), sum_above[I], sum_middle[I], sum_below[I]), ...);
        // The next stage costs as much as the products of this many pairs.
        if (next == 0 || remaining * PAIRS_PER_AXIS <= next * int(sizeof...(I))) return;
    }
}

// `bound` for the first `count` key vectors, up to OFFSETS.
template <int COUNT = OFFSETS, typename Keys>
void bound(const Tile& tile, Keys keys, int count, Bounds& bounds) {
    if constexpr (COUNT > Keys::STEP)
        if (count <= COUNT - Keys::STEP) return bound<COUNT - Keys::STEP>(tile, keys, count, bounds);
    bound(tile, keys, bounds, std::make_integer_sequence<int, COUNT>());
}

// `bound` for a shift that is only known at run time.
template <int SHIFT = 0>
void bound_beside(const Tile& tile, int shift, const float* const* vectors, int count, Bounds& bounds) {
    if (shift == SHIFT) return bound(tile, Beside<SHIFT>{{vectors[0], vectors[1], vectors[2]}}, count, bounds);
    if constexpr (SHIFT + 1 < LANES) bound_beside<SHIFT + 1>(tile, shift, vectors, count, bounds);
}

uint32_t lanes_between(int low, int high) {
    if (high <= low) return 0;
    return ((1u << high) - 1u) & ~((1u << low) - 1u);
}

// Keys of row `y`, at horizontal offsets `begin` to `begin + count - 1` from their queries.
void search_offsets(Tile& tile, const Reference& reference, int y, int begin, int count, const int* reach) {
    const Map& keys = reference.map;
    const int column = tile.left + begin + FAR, vector = column / LANES - FAR / LANES;
    const float* vectors[3];
    for (int i = 0; i < 3; ++i) {
        // Beyond the map any vector will do: its results are ignored.
        const int at = std::min(std::max(vector + i, 0), panels(keys) * PANEL / LANES - 1) * LANES;
        vectors[i] = panel(keys, y, at / PANEL) + at % PANEL;
    }
    Bounds bounds;
    bound_beside(tile, column % LANES, vectors, count, bounds);
    for (int row = 0; row < tile.rows(); ++row)
        for (int i = 0; i < count; ++i) {
            const int dy = y - tile.top - row, dx = begin + i;
            if (std::abs(dx) > reach[row]) continue;
            uint32_t found = at_least(bounds.of[row][i], load(tile.threshold[row]));
            if (!found) continue;
            // Keep only keys inside the map.
            found &= lanes_between(std::max(0, -dx - tile.left), std::min(LANES, keys.columns - dx - tile.left));
            const int64_t first = int64_t(y) * keys.columns + tile.left + dx;
            for (; found; found &= found - 1) {
                const int lane = __builtin_ctz(found);
                tile.offer(row, lane, reference, first + lane, dy * dy + dx * dx);
            }
        }
}

// middle, middle - 1, middle + 1, middle - 2 and so on. Near cells are the most similar, and high thresholds early on
// skip most of the rest.
int outwards(int middle, int step) { return step % 2 ? middle - (step + 1) / 2 : middle + step / 2; }

void search_row(Tile& tile, const Reference& reference, int y) {
    int reach[ROWS], widest = -1;
    for (int row = 0; row < ROWS; ++row) {
        const int dy = std::abs(y - tile.top - row);
        reach[row] = row < tile.rows() && dy < reference.reach_rows ? reference.reach[dy] : -1;
        widest = std::max(widest, reach[row]);
    }
    const int first = std::max(-widest, -(tile.left + tile.columns() - 1));
    const int last = std::min(widest, reference.map.columns - 1 - tile.left);
    const int count = last - first + 1;
    if (widest < 0 || count <= 0) return;
    const int chunks = (count + OFFSETS - 1) / OFFSETS, own = std::min(std::max(-first / OFFSETS, 0), chunks - 1);
    for (int step = 0; step <= 2 * chunks; ++step) {
        const int begin = outwards(own, step) * OFFSETS;
        if (begin >= 0 && begin < count)
            search_offsets(tile, reference, y, first + begin, std::min(OFFSETS, count - begin), reach);
    }
}

void search_window(Tile& tile, const Reference& reference) {
    const int farthest = ROWS / 2 + reference.reach_rows - 1;
    for (int step = 0; step <= 2 * farthest; ++step) {
        const int y = outwards(tile.top + ROWS / 2, step);
        if (y >= 0 && y < reference.map.rows) search_row(tile, reference, y);
    }
}

void search_everywhere(Tile& tile, const Reference& reference) {
    const Map& keys = reference.map;
    Bounds bounds;
    for (int step = 0; step <= 2 * std::max(keys.rows, tile.top + ROWS); ++step) {
        const int y = outwards(tile.top + ROWS / 2, step);
        if (y < 0 || y >= keys.rows) continue;
        for (int x = 0, count; x < keys.columns; x += count) {
            count = std::min({OFFSETS, PANEL - x % PANEL, keys.columns - x});
            bound(tile, Everywhere{panel(keys, y, x / PANEL) + x % PANEL}, count, bounds);
            for (int row = 0; row < tile.rows(); ++row)
                for (int i = 0; i < count; ++i) {
                    uint32_t found = at_least(bounds.of[row][i], load(tile.threshold[row]));
                    for (; found; found &= found - 1) {
                        const int lane = __builtin_ctz(found);
                        const int dy = y - tile.top - row, dx = x + i - tile.left - lane;
                        tile.offer(row, lane, reference, int64_t(y) * keys.columns + x + i, dy * dy + dx * dx);
                    }
                }
        }
    }
}

}  // namespace

// The top-k keys of every query over all references, best first: [query][k]. Missing keys have the score -inf. The
// order of the references does not change the result.
EXPORT void search(const Map* query, const Reference* references, int32_t count, int32_t k, int32_t threads,
                    float* score, int64_t* index, int32_t* distance) {
    const int across = (query->columns + LANES - 1) / LANES, down = (query->rows + ROWS - 1) / ROWS;
    in_parallel(threads, int64_t(across) * down, [&](int64_t part) {
        Tile tile(*query, int(part / across) * ROWS, int(part % across) * LANES, k);
        for (int i = 0; i < count; ++i) {
            if (references[i].reach_rows)
                search_window(tile, references[i]);
            else
                search_everywhere(tile, references[i]);
        }
        tile.write(score, index, distance);
    });
}

// ------------------------------------------------------------------------------------------------------- voting

// The weighted sum of the labels of each query's neighbours. labels[r] is the `cells` x `channels` label map of
// reference r; `index` counts the cells of all references.
EXPORT void vote(const int64_t* index, const float* weight, int64_t queries, int32_t votes,
                  const float* const* labels, int64_t cells, int32_t channels, int32_t threads, float* result) {
    constexpr int64_t AT_ONCE = 256;
    in_parallel(threads, (queries + AT_ONCE - 1) / AT_ONCE, [&](int64_t part) {
        for (int64_t query = part * AT_ONCE; query < std::min(queries, (part + 1) * AT_ONCE); ++query) {
            float* sum = result + query * channels;
            std::fill(sum, sum + channels, 0.0f);
            for (int i = 0; i < votes; ++i) {
                const int64_t place = index[query * votes + i];
                const float share = weight[query * votes + i];
                const float* label = labels[place / cells] + (place % cells) * channels;
                for (int c = 0; c < channels; ++c) sum[c] += share * label[c];
            }
        }
    });
}

// ----------------------------------------------------------------------------------------------------- decoding

extern "C" {

// Linear interpolation: pixel p of an axis is (1 - weight[p]) * cell[low[p]] + weight[p] * cell[high[p]].
struct Taps {
    const int64_t* low;
    const int64_t* high;
    const float* weight;
    int32_t pixels;
};

}  // extern "C"

namespace {

float between(float a, float b, float weight) {
    // From the nearer end, so that weights 0 and 1 give the ends exactly.
    return weight < 0.5f ? a + weight * (b - a) : b + (weight - 1.0f) * (b - a);
}

// The starts of the runs of pixels that use the same two cells, and the end of the last run.
std::vector<int> runs(const Taps& taps) {
    std::vector<int> begins;
    for (int p = 0; p < taps.pixels; ++p)
        if (p == 0 || taps.low[p] != taps.low[p - 1] || taps.high[p] != taps.high[p - 1]) begins.push_back(p);
    begins.push_back(taps.pixels);
    return begins;
}

}  // namespace

// The strongest channel at every pixel after bilinear interpolation; the lowest channel wins a tie. Pixels between the
// same four cells are decoded together: a channel that is 0 in all four cannot win there, unless it is channel 0.
EXPORT void decide(const float* soft, int32_t columns, int32_t channels, const Taps* y, const Taps* x,
                    int32_t threads, int32_t* winner) {
    const std::vector<int> down = runs(*y), across = runs(*x);
    in_parallel(threads, int64_t(down.size()) - 1, [&](int64_t part) {
        std::vector<int> alive;
        for (size_t run = 0; run + 1 < across.size(); ++run) {
            const int64_t top = y->low[down[part]], bottom = y->high[down[part]];
            const int64_t left = x->low[across[run]], right = x->high[across[run]];
            const auto at = [&](int64_t row, int64_t column) { return soft + (row * columns + column) * channels; };
            const float* corner[] = {at(top, left), at(top, right), at(bottom, left), at(bottom, right)};
            alive.assign(1, 0);
            for (int c = 1; c < channels; ++c)
                if (corner[0][c] > 0 || corner[1][c] > 0 || corner[2][c] > 0 || corner[3][c] > 0) alive.push_back(c);
            for (int row = down[part]; row < down[part + 1]; ++row) {
                int32_t* pixels = winner + int64_t(row) * x->pixels;
                if (alive.size() == 1) {
                    std::fill(pixels + across[run], pixels + across[run + 1], 0);
                    continue;
                }
                for (int column = across[run]; column < across[run + 1]; ++column) {
                    float best = 0;
                    for (size_t i = 0; i < alive.size(); ++i) {
                        const int c = alive[i];
                        const float value =
                            between(between(corner[0][c], corner[1][c], x->weight[column]),
                                    between(corner[2][c], corner[3][c], x->weight[column]), y->weight[row]);
                        if (i == 0 || value > best) {
                            best = value;
                            pixels[column] = c;
                        }
                    }
                }
            }
        }
    });
}

// Averages of pixels over cells along an axis: cell c is the sum of weight[begin[c] + i] * pixel[first[c] + i].
extern "C" {
struct Areas {
    const int64_t* first;
    const int64_t* begin;  // one more than there are cells
    const float* weight;
    int32_t cells;
};
}  // extern "C"

// The mean colour (0 to 1) of every cell of a grid: pooled[row][column][3] of image[][width][3].
EXPORT void pool_image(const uint8_t* image, int32_t width, const Areas* y, const Areas* x, int32_t threads,
                        float* pooled) {
    in_parallel(threads, y->cells, [&](int64_t row) {
        std::vector<float> sums(int64_t(width) * 3, 0.0f);
        for (int64_t i = y->begin[row]; i < y->begin[row + 1]; ++i) {
            const uint8_t* pixels = image + (y->first[row] + i - y->begin[row]) * int64_t(width) * 3;
            for (int64_t p = 0; p < int64_t(width) * 3; ++p) sums[p] += y->weight[i] * pixels[p];
        }
        for (int64_t column = 0; column < x->cells; ++column)
            for (int colour = 0; colour < 3; ++colour) {
                float sum = 0;
                for (int64_t i = x->begin[column]; i < x->begin[column + 1]; ++i)
                    sum += x->weight[i] * sums[(x->first[column] + i - x->begin[column]) * 3 + colour];
                pooled[(row * x->cells + column) * 3 + colour] = sum / 255.0f;
            }
    });
}

namespace {

// A rectangle of cells, from top and left up to, but not including, bottom and right.
struct Box {
    int top, left, bottom, right;
    int rows() const { return std::max(bottom - top, 0); }
    int columns() const { return std::max(right - left, 0); }
    int64_t cells() const { return int64_t(rows()) * columns(); }
    int64_t index(int row, int column) const { return int64_t(row - top) * columns() + column - left; }
    void add(int row, int column) {
        top = std::min(top, row);
        left = std::min(left, column);
        bottom = std::max(bottom, row + 1);
        right = std::max(right, column + 1);
    }
};

Box grown(const Box& box, int by, int rows, int columns) {
    if (box.cells() == 0) return box;
    return {std::max(box.top - by, 0), std::max(box.left - by, 0), std::min(box.bottom + by, rows),
            std::min(box.right + by, columns)};
}

// The box of the same cells where each is divided into parts x parts, and a cell more for interpolation.
Box divided(const Box& box, int parts, int rows, int columns) {
    return grown({box.top * parts, box.left * parts, box.bottom * parts, box.right * parts}, parts, rows, columns);
}

Box united(const Box& one, const Box& other) {
    if (one.cells() == 0) return other;
    if (other.cells() == 0) return one;
    return {std::min(one.top, other.top), std::min(one.left, other.left), std::max(one.bottom, other.bottom),
            std::max(one.right, other.right)};
}

// Means over the windows of a few maps, [map][row][column], cut off at the border; `between` is scratch.
void average(std::vector<float>& maps, std::vector<float>& between, int count, int rows, int columns, int radius) {
    between.assign(int64_t(count) * rows * columns, 0.0f);
    for (int64_t line = 0; line < int64_t(count) * rows; ++line) {
        const float* from = &maps[line * columns];
        float* to = &between[line * columns];
        for (int shift = -radius; shift <= radius; ++shift) {
            const int begin = std::max(-shift, 0), end = std::min(columns - shift, columns);
            for (int column = begin; column < end; ++column) to[column] += from[column + shift];
        }
        for (int column = 0; column < columns; ++column)
            to[column] /= std::min(column + radius, columns - 1) - std::max(column - radius, 0) + 1;
    }
    for (int map = 0; map < count; ++map)
        for (int row = 0; row < rows; ++row) {
            const int low = std::max(row - radius, 0), high = std::min(row + radius, rows - 1);
            float* to = &maps[(int64_t(map) * rows + row) * columns];
            std::fill(to, to + columns, 0.0f);
            for (int i = low; i <= high; ++i) {
                const float* from = &between[(int64_t(map) * rows + i) * columns];
                for (int column = 0; column < columns; ++column) to[column] += from[column];
            }
            for (int column = 0; column < columns; ++column) to[column] /= high - low + 1;
        }
}

constexpr float SMALL_SHARE = 1e-3f;  // of a channel in a cell: less neither counts nor makes an outline
constexpr float SMALL_VARIANCE = 1e-4f;  // of a channel: less is not worth explaining

// Where a channel has a share of a cell, and where it changes from the cell above or to the left.
struct Places {
    Box present, changing;
};

std::vector<Places> find_places(const float* values, int rows, int columns, int channels) {
    const Box nowhere{rows, columns, 0, 0};
    std::vector<Places> places(channels, {nowhere, nowhere});
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const float* here = values + (int64_t(row) * columns + column) * channels;
            const float* above = row > 0 ? here - int64_t(columns) * channels : here;
            const float* left = column > 0 ? here - channels : here;
            for (int c = 1; c < channels; ++c) {
                if (here[c] < SMALL_SHARE && above[c] < SMALL_SHARE && left[c] < SMALL_SHARE) continue;
                if (here[c] >= SMALL_SHARE) places[c].present.add(row, column);
                if (std::abs(here[c] - above[c]) >= SMALL_SHARE || std::abs(here[c] - left[c]) >= SMALL_SHARE)
                    places[c].changing.add(row, column);
            }
        }
    return places;
}

// What the guide says around every cell: its mean colour, and the inverse of the covariance of its colours.
struct Guide {
    std::vector<float> mean, inverse;  // [3][row][column] and [6][row][column]: rr, rg, rb, gg, gb, bb
};

Guide describe(const float* colours, int rows, int columns, int radius, float epsilon) {
    const int64_t cells = int64_t(rows) * columns;
    static constexpr int FIRST[] = {0, 0, 0, 1, 1, 2}, SECOND[] = {0, 1, 2, 1, 2, 2};
    Guide guide{std::vector<float>(3 * cells), std::vector<float>(6 * cells)};
    for (int64_t cell = 0; cell < cells; ++cell) {
        for (int c = 0; c < 3; ++c) guide.mean[c * cells + cell] = colours[cell * 3 + c];
        for (int p = 0; p < 6; ++p)
            guide.inverse[p * cells + cell] = colours[cell * 3 + FIRST[p]] * colours[cell * 3 + SECOND[p]];
    }
    std::vector<float> between;
    average(guide.mean, between, 3, rows, columns, radius);
    average(guide.inverse, between, 6, rows, columns, radius);
    for (int64_t cell = 0; cell < cells; ++cell) {
        float cov[6];
        for (int p = 0; p < 6; ++p)
            cov[p] = guide.inverse[p * cells + cell] -
                     guide.mean[FIRST[p] * cells + cell] * guide.mean[SECOND[p] * cells + cell] +
                     (FIRST[p] == SECOND[p] ? epsilon : 0.0f);
        const float rr = cov[0], rg = cov[1], rb = cov[2], gg = cov[3], gb = cov[4], bb = cov[5];
        const float cofactors[] = {gg * bb - gb * gb, rb * gb - rg * bb, rg * gb - rb * gg,
                                   rr * bb - rb * rb, rb * rg - rr * gb, rr * gg - rg * rg};
        const float determinant = rr * cofactors[0] + rg * cofactors[1] + rb * cofactors[2];
        for (int p = 0; p < 6; ++p) guide.inverse[p * cells + cell] = cofactors[p] / determinant;
    }
    return guide;
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

// One channel as linear functions of the colour, [row][column] of `box`, outside of which it is 0: the coefficients of
// red, green, blue and 1.
struct Lines {
    Box box{0, 0, 0, 0};
    std::vector<float> coefficients;
    Four at(int row, int column) const {
        if (row < box.top || row >= box.bottom || column < box.left || column >= box.right) return Four{};
        return *reinterpret_cast<const Four*>(&coefficients[box.index(row, column) * 4]);
    }
};

// A channel of a label map interpolated to the cells of a box.
std::vector<float> interpolated(const float* values, int columns, int channels, int channel, const Taps& y,
                                const Taps& x, const Box& box) {
    std::vector<float> fine(box.cells());
    for (int row = box.top; row < box.bottom; ++row)
        for (int column = box.left; column < box.right; ++column) {
            const auto at = [&](int64_t r, int64_t c) { return values[(r * columns + c) * channels + channel]; };
            const float top = between(at(y.low[row], x.low[column]), at(y.low[row], x.high[column]), x.weight[column]);
            const float bottom =
                between(at(y.high[row], x.low[column]), at(y.high[row], x.high[column]), x.weight[column]);
            fine[box.index(row, column)] = between(top, bottom, y.weight[row]);
        }
    return fine;
}

// Fits one channel, whose values are those of `box`, by linear functions of the colours around each of its cells,
// averaged over the windows that hold the cell. What the windows smooth away is added again where the colours do not
// explain the channel. Returns maps of the box: three slopes and a constant, right where all cells within two windows
// are in the box.
std::vector<float> fit(const std::vector<float>& values, const float* colours, const Guide& guide, int columns,
                       int64_t cells, int radius, const Box& box) {
    const int64_t size = box.cells();
    // First the products with three colours, the channel, and its square; then the slopes, the constant, the mean of
    // the channel, and the share of its variance that the colours explain.
    std::vector<float> maps(6 * size), scratch;
    for (int row = 0; row < box.rows(); ++row) {
        const float* colour = colours + (int64_t(row + box.top) * columns + box.left) * 3;
        for (int column = 0; column < box.columns(); ++column) {
            const int64_t i = int64_t(row) * box.columns() + column;
            for (int c = 0; c < 3; ++c) maps[c * size + i] = colour[column * 3 + c] * values[i];
            maps[3 * size + i] = values[i];
            maps[4 * size + i] = values[i] * values[i];
        }
    }
    average(maps, scratch, 5, box.rows(), box.columns(), radius);
    for (int row = 0; row < box.rows(); ++row) {
        const float* mean = &guide.mean[int64_t(row + box.top) * columns + box.left];
        const float* inverse = &guide.inverse[int64_t(row + box.top) * columns + box.left];
        float* map = &maps[int64_t(row) * box.columns()];
        for (int i = 0; i < box.columns(); ++i) {
            const float value = map[3 * size + i];
            const float r = map[i] - mean[i] * value, g = map[size + i] - mean[cells + i] * value,
                        b = map[2 * size + i] - mean[2 * cells + i] * value;
            const float slope_r = inverse[i] * r + inverse[cells + i] * g + inverse[2 * cells + i] * b,
                        slope_g = inverse[cells + i] * r + inverse[3 * cells + i] * g + inverse[4 * cells + i] * b,
                        slope_b = inverse[2 * cells + i] * r + inverse[4 * cells + i] * g + inverse[5 * cells + i] * b;
            const float variance = map[4 * size + i] - value * value;
            const float explained = (slope_r * r + slope_g * g + slope_b * b) / (variance + SMALL_VARIANCE);
            map[i] = slope_r;
            map[size + i] = slope_g;
            map[2 * size + i] = slope_b;
            map[3 * size + i] = value - (slope_r * mean[i] + slope_g * mean[cells + i] + slope_b * mean[2 * cells + i]);
            map[4 * size + i] = value;
            map[5 * size + i] = std::min(std::max(explained, 0.0f), 1.0f);
        }
    }
    average(maps, scratch, 6, box.rows(), box.columns(), radius);
    for (int64_t i = 0; i < size; ++i)
        maps[3 * size + i] += (1.0f - maps[5 * size + i]) * (values[i] - maps[4 * size + i]);
    return maps;
}

}  // namespace

// The guided filter (see labels/guided.py): the channel with the largest linear function of the colour at every pixel
// of an image; the lowest channel wins a tie. Labels are values[row][column][channel] of a map whose cells are divided
// into parts x parts, to which fine_y and fine_x interpolate; colours[row][column][3] are those of the divided cells,
// and y and x interpolate from these to pixels.
EXPORT void decide_guided(const float* values, int32_t label_rows, int32_t label_columns, int32_t channels,
                           int32_t parts, const Taps* fine_y, const Taps* fine_x, const float* colours, int32_t radius,
                           float epsilon, const Taps* y, const Taps* x, const uint8_t* image, int32_t threads,
                           int32_t* winner) {
    const int rows = fine_y->pixels, columns = fine_x->pixels;
    const int64_t cells = int64_t(rows) * columns;
    const Guide guide = describe(colours, rows, columns, radius, epsilon);
    const std::vector<Places> places = find_places(values, label_rows, label_columns, channels);
    std::vector<Lines> lines(channels);
    in_parallel(threads, channels - 1, [&](int64_t part) {
        const int channel = int(part) + 1;
        // The filter changes cells within two windows of an outline, which depend on those two windows farther.
        const Box inner = grown(divided(places[channel].changing, parts, rows, columns), 2 * radius, rows, columns);
        const Box outer = grown(inner, 2 * radius, rows, columns);
        const Box present = divided(places[channel].present, parts, rows, columns);
        Lines& own = lines[channel];
        own.box = united(present, inner);
        own.coefficients.assign(own.box.cells() * 4, 0.0f);
        const auto at = [&](const Box& box) {
            return interpolated(values, label_columns, channels, channel, *fine_y, *fine_x, box);
        };
        const auto copy = [&](const std::vector<float>& maps, const Box& from, const Box& to, int first, int count) {
            for (int row = to.top; row < to.bottom; ++row)
                for (int column = to.left; column < to.right; ++column)
                    for (int map = 0; map < count; ++map)
                        own.coefficients[own.box.index(row, column) * 4 + first + map] =
                            maps[map * from.cells() + from.index(row, column)];
        };
        copy(at(present), present, present, 3, 1);
        if (inner.cells() > 0)
            copy(fit(at(outer), colours, guide, columns, cells, radius, outer), outer, inner, 0, 4);
    });
    // A constant is fitted exactly: what the objects leave is the background's.
    Lines& background = lines[0];
    background.box = {0, 0, rows, columns};
    background.coefficients.assign(cells * 4, 0.0f);
    in_parallel(threads, rows, [&](int64_t row) {
        float* rest = &background.coefficients[row * columns * 4];
        for (int column = 0; column < columns; ++column) rest[column * 4 + 3] = 1.0f;
        for (int channel = 1; channel < channels; ++channel) {
            const Lines& own = lines[channel];
            if (row < own.box.top || row >= own.box.bottom) continue;
            const float* from = &own.coefficients[(row - own.box.top) * own.box.columns() * 4];
            float* to = rest + own.box.left * 4;
            for (int i = 0; i < own.box.columns() * 4; ++i) to[i] -= from[i];
        }
    });
    const std::vector<int> down = runs(*y), across = runs(*x);
    in_parallel(threads, int64_t(down.size()) - 1, [&](int64_t part) {
        const int top = int(y->low[down[part]]), bottom = int(y->high[down[part]]);
        std::vector<int> near, alive;
        for (int c = 1; c < channels; ++c)
            if (bottom >= lines[c].box.top && top < lines[c].box.bottom) near.push_back(c);
        std::vector<Four> corners, left_lines, right_lines;
        for (size_t run = 0; run + 1 < across.size(); ++run) {
            const int left = int(x->low[across[run]]), right = int(x->high[across[run]]);
            alive.clear();
            corners.clear();
            const auto consider = [&](int c) {
                const Four corner[] = {lines[c].at(top, left), lines[c].at(top, right), lines[c].at(bottom, left),
                                       lines[c].at(bottom, right)};
                const Four any = corner[0] * corner[0] + corner[1] * corner[1] + corner[2] * corner[2] +
                                 corner[3] * corner[3];
                if (c > 0 && (any[0] + any[1]) + (any[2] + any[3]) == 0) return;
                alive.push_back(c);
                corners.insert(corners.end(), corner, corner + 4);
            };
            consider(0);
            for (const int c : near)
                if (right >= lines[c].box.left && left < lines[c].box.right) consider(c);
            left_lines.resize(alive.size());
            right_lines.resize(alive.size());
            for (int row = down[part]; row < down[part + 1]; ++row) {
                int32_t* pixels = winner + int64_t(row) * x->pixels;
                if (alive.size() == 1) {
                    std::fill(pixels + across[run], pixels + across[run + 1], 0);
                    continue;
                }
                for (size_t i = 0; i < alive.size(); ++i) {
                    const Four* corner = &corners[i * 4];
                    left_lines[i] = corner[0] + y->weight[row] * (corner[2] - corner[0]);
                    right_lines[i] = corner[1] + y->weight[row] * (corner[3] - corner[1]);
                }
                for (int column = across[run]; column < across[run + 1]; ++column) {
                    const uint8_t* rgb = image + (int64_t(row) * x->pixels + column) * 3;
                    const Four colour = {rgb[0] / 255.0f, rgb[1] / 255.0f, rgb[2] / 255.0f, 1.0f};
                    float best = 0;
                    for (size_t i = 0; i < alive.size(); ++i) {
                        const Four part_of =
                            (left_lines[i] + x->weight[column] * (right_lines[i] - left_lines[i])) * colour;
                        const float value = (part_of[0] + part_of[1]) + (part_of[2] + part_of[3]);
                        if (i == 0 || value > best) {
                            best = value;
                            pixels[column] = alive[i];
                        }
                    }
                }
            }
        }
    });
}

// --------------------------------------------------------------------------------------------------- versions

// The checksum of the kernel.cpp that this library was compiled from.
EXPORT uint32_t source() { return SOURCE; }

// The instruction sets of this processor: 0 the base set, 1 AVX2 with FMA, 2 also AVX-512.
EXPORT int32_t level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return __builtin_cpu_supports("avx512f") ? 2 : 1;
#endif
    return 0;
}
