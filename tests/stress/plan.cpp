#include "stress/plan.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <stdexcept>

namespace stress {
namespace {

using std::chrono::microseconds;

constexpr std::array deed_names{"acquire", "try",      "timed",   "cancel",
                                "barging", "deadline", "guarded", "look"};
/// Percentages. The cheap ones prevail: a soak of many calls finds more than one of long waits.
constexpr std::array deed_shares{30, 24, 14, 8, 6, 4, 8, 6};
constexpr std::array trouble_names{"kill", "pause", "cut", "break", "reap", "restart", "crash"};
constexpr std::array trouble_shares{22, 18, 22, 20, 12, 3, 3};

/// SplitMix64: every input bit affects every output bit.
std::uint64_t mixed(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31U);
}

/// The random numbers of one step.
class dice {
public:
    explicit dice(std::uint64_t state) : state_{state} {}
    std::uint64_t next() { return state_ = mixed(state_); }
    int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

private:
    std::uint64_t state_;
};

template <std::size_t Size>
int chosen(const std::array<int, Size>& shares, int point) {
    for (std::size_t i = 0; i < Size; ++i) {
        point -= shares.at(i);
        if (point < 0) return static_cast<int>(i);
    }
    return 0;
}

}  // namespace

const char* to_string(deed what) noexcept {
    return deed_names.at(static_cast<std::size_t>(what));
}

const char* to_string(trouble what) noexcept {
    return trouble_names.at(static_cast<std::size_t>(what));
}

plan::plan(std::uint64_t seed, int names, const std::string& only) : seed_{seed}, names_{names} {
    std::istringstream words{only};
    for (std::string word; std::getline(words, word, ',');) only_.insert(word);
}

/// A third of the steps contend for the first names, the rest mostly find theirs free.
step plan::at(std::uint64_t slot, std::uint64_t thread, std::uint64_t number) const {
    dice roll{mixed(mixed(mixed(seed_) + slot) + thread) + number};
    step one;
    one.what = static_cast<deed>(chosen(deed_shares, roll.below(100)));
    const int hot = std::min(4, names_);
    one.name = roll.below(3) == 0 ? roll.below(hot) : roll.below(names_);
    one.hold = microseconds{roll.below(8) == 0 ? roll.below(4'000) : 0};
    one.patience = microseconds{1 + roll.below(30'000)};
    return one;
}

disturbance plan::at(std::uint64_t number, std::int64_t calls_between) const {
    dice roll{mixed(mixed(seed_) ^ 0x7472'6f75'626c'6573U) + number};
    disturbance one;
    one.what = static_cast<trouble>(chosen(trouble_shares, roll.below(100)));
    one.choice = roll.next();
    one.share = roll.below(1'000) / 1'000.0;
    one.calls = calls_between / 2 +
                static_cast<std::int64_t>(roll.next() % static_cast<std::uint64_t>(calls_between));
    return one;
}

progress::progress(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, sizeof(shared)) != 0) {
        throw std::runtime_error{"cannot write " + path};
    }
    void* const mapped = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error{"cannot map " + path};
    memory_ = static_cast<shared*>(mapped);
}

progress::~progress() {
    munmap(memory_, sizeof(shared));
}

}  // namespace stress
