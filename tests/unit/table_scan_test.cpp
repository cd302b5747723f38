#include "upkeep/table_scan.hpp"

#include "sql/statements.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using detail::table_scan;

namespace {

/// Answers the scan's queries: the number of pages, the least number at once, or names in order.
class table_of_leases final : public sql::connection {
public:
    table_of_leases(std::int64_t pages, std::int64_t at_once) : pages_{pages}, at_once_{at_once} {}
    explicit table_of_leases(std::vector<std::string> names) : names_{std::move(names)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override {
        return names_.empty() ? sql::dialect::postgresql : sql::dialect::sqlite;
    }
    sql::result execute(const sql::statement& /*what*/, std::span<const sql::value> parameters,
                        sql::deadline /*until*/) override {
        ++questions;
        if (names_.empty()) {
            sql::result extent{2};
            extent.append_integer(pages_);
            extent.append_integer(at_once_);
            return extent;
        }
        sql::result found{1};
        auto left = parameters[1].integer();
        for (const auto& name : names_) {
            if (name <= parameters[0].text() || --left > 0) continue;
            found.append_text(name);
            break;
        }
        return found;
    }
    sql::result query(std::string_view /*text*/, sql::deadline /*until*/) override {
        return sql::result{};
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }

    int questions = 0;

private:
    std::int64_t pages_ = 0;
    std::int64_t at_once_ = 0;
    std::vector<std::string> names_{};
};

struct walker {
    explicit walker(table_of_leases& of)
        : walk{of,
               sql::load_statement(of.speaks(), of.speaks() == sql::dialect::postgresql
                                                    ? "lease_pages"
                                                    : "next_name"),
               {.batch = 3,
                .patience = 5s,
                .now = [this] { return now; },
                .pause = [this](std::chrono::steady_clock::duration time) { paused += time; }},
               token} {}
    walker(const walker&) = delete;
    walker& operator=(const walker&) = delete;
    ~walker() = default;

    std::chrono::steady_clock::time_point now{};
    std::chrono::steady_clock::duration paused{};
    std::stop_source stop{};
    std::stop_token token{stop.get_token()};
    table_scan walk;
};

using place = std::optional<table_scan::place>;

/// The pages that the statements of a scan saw, if none finds more rows than it may change and each
/// takes `each`.
std::vector<table_scan::pages> stretches_of(table_of_leases table,
                                            std::chrono::milliseconds each = 0ms) {
    walker by{table};
    std::vector<table_scan::pages> seen;
    by.walk.over_pages([&](const table_scan::pages& in) -> place {
        seen.push_back(in);
        by.now += each;
        return std::nullopt;
    });
    return seen;
}

std::int64_t length_of(const table_scan::pages& piece) {
    return piece.past - piece.page;
}

}  // namespace

TEST_CASE("a scan by pages sees each page once") {
    const auto seen = stretches_of(table_of_leases{100'000, 1});
    std::int64_t next = 0;
    for (const auto& piece : seen) {
        CHECK(piece.page == next);
        CHECK(piece.row == 0);
        CHECK(piece.past > piece.page);
        CHECK(length_of(piece) <= 4096);
        next = piece.past;
    }
    CHECK(next == 100'000);
}

TEST_CASE("a scan by pages reads more at a time while that is quick") {
    const auto seen = stretches_of(table_of_leases{100'000, 1}, 9ms);
    REQUIRE(seen.size() > 8);
    for (std::size_t i = 0; i < 7; ++i) CHECK(length_of(seen[i]) == 32 << i);
    CHECK(length_of(seen[8]) == 4096);  // and no more
}

TEST_CASE("a scan by pages reads less at a time after a slow statement") {
    table_of_leases table{100'000, 1};
    walker by{table};
    std::vector<std::int64_t> lengths;
    by.walk.over_pages([&](const table_scan::pages& in) -> place {
        lengths.push_back(length_of(in));
        if (lengths.size() < 3) by.now += 5ms;
        if (lengths.size() == 3) by.now += 21ms;
        if (lengths.size() > 3) by.now += 15ms;
        return std::nullopt;
    });
    REQUIRE(lengths.size() > 4);
    CHECK(lengths[2] == 128);
    CHECK(lengths[3] == 64);
    CHECK(lengths[4] == 64);  // neither quick nor slow
}

TEST_CASE("a scan pauses for as long as each statement took, and no longer than 20 ms") {
    table_of_leases table{96, 1};
    walker by{table};
    by.walk.over_pages([&](const table_scan::pages&) -> place {
        by.now += 15ms;
        return std::nullopt;
    });
    CHECK(by.paused == 3 * 15ms);
    table_of_leases names{{"a", "b"}};
    walker slow{names};
    slow.walk.over_names([&](const std::string&, const sql::value&) { slow.now += 1s; });
    CHECK(slow.paused == 0ms);  // nothing follows the last piece
    table_of_leases more{{"a", "b", "c", "d"}};
    walker slower{more};
    slower.walk.over_names([&](const std::string&, const sql::value&) { slower.now += 1s; });
    CHECK(slower.paused == 20ms);
}

TEST_CASE("a slow scan by pages does not read more at a time, nor less than the minimum") {
    for (const auto& piece : stretches_of(table_of_leases{128, 1}, 25ms)) {
        CHECK(length_of(piece) == 32);
    }
}

TEST_CASE("an empty table needs no statement; one whose server cannot read a part needs one") {
    CHECK(stretches_of(table_of_leases{0, 0}).empty());
    const auto whole = stretches_of(table_of_leases{100'000, 100'000});
    REQUIRE(whole.size() == 1);
    CHECK(whole[0].past == 100'000);
}

TEST_CASE("a statement that changed a whole batch is followed by one after its last row") {
    table_of_leases table{1000, 1};
    const walker by{table};
    std::vector<table_scan::pages> seen;
    by.walk.over_pages([&](const table_scan::pages& in) -> place {
        seen.push_back(in);
        if (seen.size() == 1) return table_scan::place{10, 7};
        if (seen.size() == 2) return table_scan::place{10, 9};  // several batches of one page
        return std::nullopt;
    });
    REQUIRE(seen.size() > 3);
    CHECK(seen[1].page == 10);
    CHECK(seen[1].row == 7);
    CHECK(length_of(seen[1]) == 11);  // as dense as the pages before
    CHECK(seen[2].page == 10);
    CHECK(seen[2].row == 9);
    CHECK(length_of(seen[2]) == 1);
    CHECK(seen[3].page == 11);
    CHECK(seen[3].row == 0);
    CHECK(length_of(seen[3]) == 32);
    CHECK(seen.back().past == 1000);
    CHECK(table.questions == 1);
}

TEST_CASE("a scan ends when a stop is requested") {
    table_of_leases table{100'000, 1};
    const walker by{table};
    auto stop = by.stop;
    int seen = 0;
    by.walk.over_pages([&](const table_scan::pages&) -> place {
        if (++seen == 2) stop.request_stop();
        return std::nullopt;
    });
    CHECK(seen == 2);
}

TEST_CASE("a scan by names sees each name once") {
    for (const std::size_t many : {1U, 2U, 3U, 4U, 6U, 7U}) {
        CAPTURE(many);
        const std::vector<std::string> all{"a", "b", "c", "d", "e", "f", "g"};
        table_of_leases table{{all.begin(), all.begin() + static_cast<std::ptrdiff_t>(many)}};
        const walker by{table};
        std::string last;
        bool to_the_end = false;
        std::size_t pieces = 0;
        by.walk.over_names([&](const std::string& after, const sql::value& upto) {
            CHECK_FALSE(to_the_end);
            CHECK(after == last);
            to_the_end = upto.is_null();
            last = std::string{upto.text()};
            ++pieces;
        });
        CHECK(to_the_end);
        CHECK(pieces == many / 3 + 1);
    }
}
