// Finding the nearest cells, summing their votes and deciding pixels: what propagation spends its time on besides
// encoding. Plain C functions, so that neither Python's nor torch's version matters.
//
// The build makes one library of this file for every instruction set it knows: LANES floats to a vector. Separate
// libraries, as the linker would otherwise keep one copy of what they share, for a processor that may not be this one.
// Each score is one chain of multiply-adds over the channels in their order, whatever the tile, the lane or the thread,
// so that equal cells have equal scores and ties are decided by the rule below and by nothing else.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
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
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Floats side by side; loads need no alignment.
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// A tile is ROWS rows of LANES queries. OFFSETS key vectors are scored against it at once: as many as registers hold.
constexpr int ROWS = 3;
constexpr int OFFSETS = LANES == 16 ? 8 : 3;
constexpr int PANEL = 16;  // columns stored together, whatever the number of lanes
constexpr int FAR = 1 << 20;  // more than any column: what is added so that places left of the map divide like others

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }

// Makes the compiler hold a vector in a register: it would load it again for every row, and a load that is not aligned
// costs more than the multiplication.
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
    for (int i = 1; i < threads && i < parts; ++i) helpers.emplace_back(take);
    take();
    for (auto& helper : helpers) helper.join();
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- searching

extern "C" {

// Features in panels of PANEL neighbouring columns, filled up with zeros: [row][panel][channel][PANEL].
struct Packed {
    const float* values;
    int32_t rows, columns, channels;
};

// A reference and its window: queries see |dx| <= reach[|dy|] for |dy| < reach_rows, or, with reach_rows 0, all of it.
struct Reference {
    Packed packed;
    const float* cells;  // [row][column][channel]
    const int32_t* reach;
    int32_t reach_rows;
    int64_t first_index;  // of its first cell among the cells of all references
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

// The higher score; of equal ones the nearest cell, then the earliest.
bool better(const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.distance != b.distance) return a.distance < b.distance;
    return a.index < b.index;
}

int panels(const Packed& packed) { return (packed.columns + PANEL - 1) / PANEL; }

const float* panel(const Packed& packed, int64_t row, int64_t place) {
    return packed.values + (row * panels(packed) + place) * packed.channels * PANEL;
}

// One tile of queries with the best candidates each of them has seen so far, best first.
struct Tile {
    const Packed& query;
    int top, left, k;
    std::vector<Candidate> best;
    alignas(64) float threshold[ROWS][LANES];  // the score of the k-th best

    Tile(const Packed& query_, int top_, int left_, int k_)
        : query(query_), top(top_), left(left_), k(k_), best(ROWS * LANES * k_, NOBODY) {
        std::fill(&threshold[0][0], &threshold[0][0] + ROWS * LANES, NOBODY.score);
    }

    int rows() const { return std::min(ROWS, query.rows - top); }
    int columns() const { return std::min(LANES, query.columns - left); }

    // Rows below the map repeat its last one; what they find is never looked at.
    const float* queries(int row) const {
        return panel(query, std::min(top + row, query.rows - 1), left / PANEL) + left % PANEL;
    }

    void offer(int row, int lane, const Candidate& candidate) {
        Candidate* list = &best[(row * LANES + lane) * k];
        if (!better(candidate, list[k - 1])) return;
        int place = k - 1;
        for (; place > 0 && better(candidate, list[place - 1]); --place) list[place] = list[place - 1];
        list[place] = candidate;
        threshold[row][lane] = list[k - 1].score;
    }

    // To the places of its queries in the whole map's results, [query][k].
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

struct Scores {
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

// Keys of one row as the queries see them at growing offsets: vector I begins SHIFT + I columns after the first of
// three neighbouring vectors. Cutting it out of two of them is faster than a load that touches two cache lines.
template <int SHIFT>
struct Beside {
    static constexpr int STEP = LANES == 16 ? 2 : 1;  // fewer counts to compile; what is too much is never looked at
    const float* vectors[3];
    template <int I>
    Vector at(int64_t c) const {
        constexpr int FIRST = (SHIFT + I) / LANES, REST = (SHIFT + I) % LANES;
        const Vector low = load(vectors[FIRST] + c * PANEL);
        if constexpr (REST == 0) return low;
        return cut<REST>(low, load(vectors[FIRST + 1] + c * PANEL), std::make_integer_sequence<int, LANES>());
    }
};

// Keys one after the other, each of them in all lanes.
struct Broadcast {
    static constexpr int STEP = 1;
    const float* from;
    int64_t channels;
    template <int I>
    Vector at(int64_t c) const {
        return Vector{} + from[I * channels + c];
    }
};

inline __attribute__((always_inline)) void add(Vector key, Vector above, Vector middle, Vector below, Vector& sum_above,
                                               Vector& sum_middle, Vector& sum_below) {
    keep(key);
    sum_above += above * key;
    sum_middle += middle * key;
    sum_below += below * key;
}

// The key vectors I... against every row of a tile.
template <typename Keys, int... I>
void score(const Tile& tile, Keys keys, Scores& scores, std::integer_sequence<int, I...>) {
    static_assert(ROWS == 3, "written out: sums must stay in registers, and compilers give up on arrays of arrays");
    const float *above = tile.queries(0), *middle = tile.queries(1), *below = tile.queries(2);
    Vector sum_above[] = {(void(I), Vector{})...}, sum_middle[] = {(void(I), Vector{})...},
           sum_below[] = {(void(I), Vector{})...};
    for (int64_t c = 0; c < tile.query.channels; ++c) {
        const Vector a = load(above + c * PANEL), m = load(middle + c * PANEL), b = load(below + c * PANEL);
        (add(keys.template at<I>(c), a, m, b, sum_above[I], sum_middle[I], sum_below[I]), ...);
    }
    ((scores.of[0][I] = sum_above[I], scores.of[1][I] = sum_middle[I], scores.of[2][I] = sum_below[I]), ...);
}

// The first `count` key vectors, up to OFFSETS, against every row of a tile.
template <int COUNT = OFFSETS, typename Keys>
void score(const Tile& tile, Keys keys, int count, Scores& scores) {
    if constexpr (COUNT > Keys::STEP)
        if (count <= COUNT - Keys::STEP) return score<COUNT - Keys::STEP>(tile, keys, count, scores);
    score(tile, keys, scores, std::make_integer_sequence<int, COUNT>());
}

// `score` for keys whose shift is known only now.
template <int SHIFT = 0>
void score_beside(const Tile& tile, int shift, const float* const* vectors, int count, Scores& scores) {
    if (shift == SHIFT) return score(tile, Beside<SHIFT>{{vectors[0], vectors[1], vectors[2]}}, count, scores);
    if constexpr (SHIFT + 1 < LANES) score_beside<SHIFT + 1>(tile, shift, vectors, count, scores);
}

uint32_t lanes_between(int low, int high) {
    if (high <= low) return 0;
    return ((1u << high) - 1u) & ~((1u << low) - 1u);
}

// Keys of row `y`, at horizontal offsets `begin` to `begin + count - 1` from their queries.
void search_offsets(Tile& tile, const Reference& reference, int y, int begin, int count, const int* reach) {
    const int columns = reference.packed.columns;
    const int column = tile.left + begin + FAR, vector = column / LANES - FAR / LANES;
    const float* vectors[3];
    for (int i = 0; i < 3; ++i) {
        // Beyond the map any other vector will do: what it gives is never looked at.
        const int at = std::min(std::max(vector + i, 0), panels(reference.packed) * PANEL / LANES - 1) * LANES;
        vectors[i] = panel(reference.packed, y, at / PANEL) + at % PANEL;
    }
    Scores scores;
    score_beside(tile, column % LANES, vectors, count, scores);
    for (int row = 0; row < tile.rows(); ++row) {
        const int dy = y - tile.top - row;
        for (int i = 0; i < count; ++i) {
            const int dx = begin + i;
            if (std::abs(dx) > reach[row]) continue;
            uint32_t found = at_least(scores.of[row][i], load(tile.threshold[row]));
            if (!found) continue;
            // Only queries of the map, whose key is one too.
            found &= lanes_between(std::max(0, -dx - tile.left), std::min(tile.columns(), columns - dx - tile.left));
            for (; found; found &= found - 1) {
                const int lane = __builtin_ctz(found);
                const int64_t cell = int64_t(y) * columns + tile.left + lane + dx;
                tile.offer(row, lane, {scores.of[row][i][lane], dy * dy + dx * dx, reference.first_index + cell});
            }
        }
    }
}

void search_row(Tile& tile, const Reference& reference, int y) {
    int reach[ROWS], widest = -1;
    for (int row = 0; row < ROWS; ++row) {
        const int dy = std::abs(y - tile.top - row);
        reach[row] = row < tile.rows() && dy < reference.reach_rows ? reference.reach[dy] : -1;
        widest = std::max(widest, reach[row]);
    }
    const int first = std::max(-widest, -(tile.left + tile.columns() - 1));
    const int last = std::min(widest, reference.packed.columns - 1 - tile.left);
    const int count = last - first + 1;
    if (widest < 0 || count <= 0) return;
    for (int done = 0; done < count; done += OFFSETS)
        search_offsets(tile, reference, y, first + done, std::min(OFFSETS, count - done), reach);
}

// Rows from the tile's own outwards: what is near is most alike, and a high threshold spares the rest.
void search_window(Tile& tile, const Reference& reference) {
    const int middle = tile.top + ROWS / 2, farthest = ROWS / 2 + reference.reach_rows - 1;
    for (int step = 0; step <= 2 * farthest; ++step) {
        const int y = step % 2 ? middle - (step + 1) / 2 : middle + step / 2;
        if (y >= 0 && y < reference.packed.rows) search_row(tile, reference, y);
    }
}

void search_everywhere(Tile& tile, const Reference& reference) {
    const int64_t channels = reference.packed.channels, columns = reference.packed.columns;
    const int64_t cells = reference.packed.rows * columns;
    const uint32_t lanes = lanes_between(0, tile.columns());
    Scores scores;
    for (int64_t first = 0; first < cells; first += OFFSETS) {
        const int count = int(std::min<int64_t>(OFFSETS, cells - first));
        const float* from = reference.cells + first * channels;
        score(tile, Broadcast{from, channels}, count, scores);
        for (int row = 0; row < tile.rows(); ++row)
            for (int i = 0; i < count; ++i) {
                uint32_t found = at_least(scores.of[row][i], load(tile.threshold[row])) & lanes;
                for (; found; found &= found - 1) {
                    const int lane = __builtin_ctz(found);
                    const int64_t cell = first + i;
                    const int64_t dy = cell / columns - tile.top - row, dx = cell % columns - tile.left - lane;
                    tile.offer(row, lane,
                               {scores.of[row][i][lane], int32_t(dy * dy + dx * dx), reference.first_index + cell});
                }
            }
    }
}

}  // namespace

// The k best cells of every query over all references, best first: [query][k]. Places left over where a query sees
// fewer than k cells have score -inf. The order of the references does not change the result.
EXPORT void search(const Packed* query, const Reference* references, int32_t count, int32_t k, int32_t threads,
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

// Each query's weighted sum of the labels of its neighbours. labels[r] are the `cells` x `channels` labels of
// reference r; index counts the cells of all references.
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

// ----------------------------------------------------------------------------------------------------- deciding

extern "C" {

// Pixel p of an axis reads (1 - weight[p]) * cell[low[p]] + weight[p] * cell[high[p]].
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

// Where runs of pixels that read the same two cells begin, and the end of the last.
std::vector<int> runs(const Taps& taps) {
    std::vector<int> begins;
    for (int p = 0; p < taps.pixels; ++p)
        if (p == 0 || taps.low[p] != taps.low[p - 1] || taps.high[p] != taps.high[p - 1]) begins.push_back(p);
    begins.push_back(taps.pixels);
    return begins;
}

}  // namespace

// The strongest channel at every pixel after bilinear interpolation; the lowest wins a tie. Pixels between the same
// four cells are decided together: a channel that none of the four has cannot win there, unless it is channel 0.
EXPORT void decide(const float* soft, int32_t columns, int32_t channels, const Taps* y, const Taps* x,
                    int32_t threads, int32_t* winner) {
    const std::vector<int> down = runs(*y), across = runs(*x);
    in_parallel(threads, int64_t(down.size()) - 1, [&](int64_t part) {
        std::vector<int> alive;
        for (size_t run = 0; run + 1 < across.size(); ++run) {
            const int64_t top = y->low[down[part]], bottom = y->high[down[part]];
            const int64_t left = x->low[across[run]], right = x->high[across[run]];
            const float* corner[4] = {soft + (top * columns + left) * channels, soft + (top * columns + right) * channels,
                                      soft + (bottom * columns + left) * channels,
                                      soft + (bottom * columns + right) * channels};
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

// -------------------------------------------------------------------------------------------------- which of them

// The instruction sets of this processor: 0 only what every one has, 1 AVX2 with FMA, 2 also AVX-512.
EXPORT int32_t level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return __builtin_cpu_supports("avx512f") ? 2 : 1;
#endif
    return 0;
}
