#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// libFuzzer calls this with each input, and so does corpus_runner.cpp without libFuzzer. Returns
/// 0. A broken rule ends the program.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// Ends the program as a crash does, so that the input is kept.
inline void require(bool holds, const char* rule, std::string_view about = {}) {
    if (holds) return;
    std::fprintf(stderr, "broken rule: %s\n  about: %.*s\n", rule, static_cast<int>(about.size()),
                 about.data());
    std::abort();
}

/// A text that no message may contain. (The fuzzer soon finds any piece of a message as an input.)
constexpr std::string_view secret = "hunter2";

inline void require_no_secret(std::string_view said) {
    require(said.find(secret) == std::string_view::npos, "a secret is not revealed", said);
}

/// Takes bytes off the input; zeros once it is used up.
class input {
public:
    input(const std::uint8_t* data, std::size_t size)
        : rest_{reinterpret_cast<const char*>(data), size} {}

    [[nodiscard]] bool empty() const { return rest_.empty(); }
    std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const auto taken = static_cast<std::uint8_t>(rest_.front());
        rest_.remove_prefix(1);
        return taken;
    }
    std::size_t below(std::size_t limit) { return byte() % limit; }
    std::int64_t number() {
        std::uint64_t made = 0;
        for (int i = 0; i < 8; ++i) made = made << 8 | byte();
        return static_cast<std::int64_t>(made);
    }
    /// Up to the next newline, or the end.
    std::string line() {
        const auto end = rest_.find('\n');
        std::string taken{rest_.substr(0, end)};
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
        return taken;
    }
    std::string all() {
        std::string taken{rest_};
        rest_ = {};
        return taken;
    }

private:
    std::string_view rest_;
};

}  // namespace fuzz
