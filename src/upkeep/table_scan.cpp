#include "upkeep/table_scan.hpp"

#include "sql/run_statement.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Target duration of a statement: its round trip weighs little, and rows it locks are soon free.
constexpr auto short_time = 10ms;
constexpr auto long_time = 20ms;
// Reading this many takes less than a millisecond: a statement over them that takes long waited for
// something else, and would do so over fewer.
constexpr std::int64_t fewest_pages = 32;
constexpr std::int64_t most_pages = 4096;

}  // namespace

// Other clients find a processor, and on SQLite the file, free half of the time.
void table_scan::rest_after(steady_clock::duration work) const {
    options_.pause(std::min<steady_clock::duration>(work, long_time));
}

void table_scan::over_pages(const by_pages& visit) const {
    const auto extent = run(db_, pieces_, until());
    const std::int64_t end = extent.integer(0, 0);  // rows added from now on are in use
    const std::int64_t at_once = extent.integer(0, 1);
    const std::int64_t least = std::max(fewest_pages, at_once);
    const std::int64_t most = std::max(most_pages, least);
    std::int64_t count = least;
    pages next;
    while (next.page < end && !stop_.stop_requested()) {
        next.past = std::min(next.page + count, end);
        const auto began = options_.now();
        const auto rest = visit(next);
        const auto took = options_.now() - began;
        if (rest) {
            count = std::max(rest->page - next.page + 1, at_once);  // the pages that held one batch
            next = {rest->page, rest->row, 0};
        } else {
            count = std::max(took < short_time ? count * 2 : count, least);
            next = {next.past, 0, 0};
        }
        if (took > long_time && count > least) count = std::max(count / 2, least);
        count = std::min(count, most);
        rest_after(took);
    }
}

void table_scan::over_names(const by_names& visit) const {
    std::string after;
    while (!stop_.stop_requested()) {
        const auto began = options_.now();
        const auto found = run(db_, pieces_, until(), after, options_.batch);
        if (found.empty()) return visit(after, nullptr);
        std::string upto{found.text(0, 0)};
        visit(after, upto);
        after = std::move(upto);
        rest_after(options_.now() - began);
    }
}

}  // namespace rowlock::detail
