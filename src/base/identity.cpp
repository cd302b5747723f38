#include "base/identity.hpp"

#include "base/fork_guard.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <random>
#include <span>
#include <string_view>
#include <utility>

namespace rowlock::base {
namespace {

constexpr int id_bits = 62;

/// getrandom() returns up to 256 bytes whole and uninterrupted. Where the call is forbidden,
/// std::random_device uses the same source in another way, or throws.
void draw(std::span<std::uint64_t> numbers) {
    const auto size = numbers.size_bytes();
    if (getrandom(numbers.data(), size, 0) == static_cast<ssize_t>(size)) return;
    std::random_device device;
    for (auto& number : numbers) number = std::uint64_t{device()} << 32 | device();
}

std::int64_t id_of(std::uint64_t drawn, int bits) {
    return static_cast<std::int64_t>(drawn >> (64 - bits)) + 1;
}

}  // namespace

std::int64_t random_id(int bits) {
    std::uint64_t drawn = 0;
    draw({&drawn, 1});
    return id_of(drawn, bits);
}

std::int64_t random_ids::next() {
    const std::lock_guard lock{mutex_};
    if (left_ == 0 || drawn_in_ != fork_generation()) {
        left_ = 0;
        draw(drawn_);
        left_ = drawn_.size();
        drawn_in_ = fork_generation();
    }
    return id_of(std::exchange(drawn_[--left_], 0), id_bits);
}

std::string random_secret() {
    constexpr std::string_view digits = "0123456789abcdef";
    std::array<std::uint64_t, 2> drawn{};
    draw(drawn);
    std::string text;
    for (const auto number : drawn) {
        for (int shift = 60; shift >= 0; shift -= 4) text += digits[number >> shift & 15];
    }
    return text;
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? std::string{name} : std::string{"unknown"};
}

}  // namespace rowlock::base
