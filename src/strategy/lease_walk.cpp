#include "strategy/lease_walk.hpp"

#include "strategy/run_statement.hpp"

#include <algorithm>

namespace rowlock::strategy {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A statement should take so long: its round trip weighs little, and rows it locks are soon free.
constexpr auto short_time = 10ms;
constexpr auto long_time = 20ms;
constexpr std::int64_t first_pages = 32;
constexpr std::int64_t most_pages = 1 << 20;

}  // namespace

void lease_walk::over_pages(const by_pages& look) const {
    const auto extent = run(db_, sql_.lease_pages.value(), until());
    const std::int64_t end = extent.integer(0, 0);  // what is added now is in use
    const std::int64_t least = std::max<std::int64_t>(1, extent.integer(0, 1));
    std::int64_t count = std::max(first_pages, least);
    pages next;
    while (next.page < end && !stop_.stop_requested()) {
        next.past = std::min(next.page + count, end);
        const auto began = steady_clock::now();
        const auto rest = look(next);
        const auto took = steady_clock::now() - began;
        if (rest) {
            // Among rows like these so many pages are a batch.
            count = rest->page - next.page + 1;
            next = {rest->page, rest->row, 0};
        } else {
            next = {next.past, 0, 0};
            if (took < short_time) count *= 2;
        }
        if (took > long_time) count /= 2;
        count = std::clamp(count, least, std::max(least, most_pages));
    }
}

void lease_walk::over_names(const by_names& look) const {
    std::string after;
    while (!stop_.stop_requested()) {
        const auto found = run(db_, sql_.next_name.value(), until(), after, options_.batch);
        if (found.empty()) return look(after, nullptr);
        std::string upto{found.text(0, 0)};
        look(after, upto);
        after = std::move(upto);
    }
}

}  // namespace rowlock::strategy
