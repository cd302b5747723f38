// The record of periodic runs: what begins, what counts as finished, what delays the next. When a
// client asks: tests/wire/periodic_run_test.cpp.

#include "lock/protocol/run/run_protocol.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = protocol::run_answer::outcome;
using support::protocol_session;
using support::soon;

namespace {

/// What a run of "nightly" is asked for with.
struct terms {
    session_id session{1};
    std::int64_t ahead = 0;  ///< of the lease's token
    std::string_view period{};
    std::optional<std::chrono::microseconds> skip_if_within{};
    std::chrono::microseconds at_least{0};
    std::chrono::microseconds lock_delay{0};
};

/// One session that holds the lease of a name, grant after grant, and its runs.
class runner {
public:
    explicit runner(support::lock_database& database)
        : database_{database}, self_{database, session_id{1}}, runs_{database.statements()} {}

    /// Another grant of the lease.
    void hold() {
        if (token_ > 0) REQUIRE(self_.free("nightly", grant_id{last_}));
        token_ = self_.try_acquire("nightly", grant_id{++last_}).value();
    }
    [[nodiscard]] protocol::run_answer begin(const terms& wanted) const {
        return runs_.begin(self_.db(),
                           {.name = "nightly",
                            .session = wanted.session,
                            .token = token_ + wanted.ahead,
                            .period = wanted.period,
                            .skip_if_within = wanted.skip_if_within,
                            .at_least = wanted.at_least,
                            .lock_delay = wanted.lock_delay},
                           soon());
    }
    [[nodiscard]] bool finish(std::string_view period, session_id session = session_id{1},
                              std::int64_t ahead = 0) const {
        return runs_.finish(self_.db(), "nightly", session, token_ + ahead, period, soon());
    }
    [[nodiscard]] std::optional<run_info> seen(std::string_view name = "nightly") const {
        return runs_.inspect(self_.db(), name, soon());
    }
    /// The rest is over.
    void rested() { database_.run("update rowlock_run set not_before = null"); }

    [[nodiscard]] std::int64_t token() const { return token_; }
    [[nodiscard]] const protocol_session& self() const { return self_; }
    [[nodiscard]] const protocol::run_protocol& runs() const { return runs_; }

private:
    support::lock_database& database_;
    const protocol_session self_;
    const protocol::run_protocol runs_;
    std::int64_t token_ = 0;
    std::int64_t last_ = 0;
};

}  // namespace

TEST_CASE("a run is recorded with its grant, and keeps others away for its rest and its period") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        runner run{database};
        CHECK_FALSE(run.seen());
        run.hold();
        const terms monday{.period = "monday", .at_least = 1h};
        CHECK(run.begin({.session = session_id{2}, .period = "monday"}).what == outcome::not_held);
        CHECK(run.begin({.ahead = 1, .period = "monday"}).what == outcome::not_held);
        CHECK(run.begin(monday).what == outcome::begun);
        CHECK(run.begin(monday).what == outcome::begun);  // its reply was lost
        auto seen = run.seen().value();
        CHECK(seen.token == fencing_token{run.token()});
        CHECK_FALSE(seen.finished);
        CHECK_FALSE(seen.period);
        CHECK_FALSE(seen.ended);
        CHECK(seen.began < 10min);
        CHECK(seen.rest > 50min);
        CHECK(seen.rest <= 1h);
        CHECK_FALSE(run.seen("another"));

        CHECK_FALSE(run.finish("monday", session_id{2}));
        CHECK_FALSE(run.finish("monday", session_id{1}, 1));
        CHECK(run.finish("monday"));
        CHECK(run.finish("monday"));  // its reply was lost
        seen = run.seen().value();
        CHECK(seen.finished);
        CHECK(seen.period == "monday");
        REQUIRE(seen.ended);
        CHECK(*seen.ended < 10min);

        const auto first = run.token();
        run.hold();
        CHECK(run.finish("monday", session_id{1}, first - run.token()));
        CHECK_FALSE(run.finish("tuesday"));  // it has not begun
        CHECK(run.begin(monday).what == outcome::done);
        const terms tuesday{.period = "tuesday", .skip_if_within = 1h};
        CHECK(run.begin({.period = "tuesday"}).what == outcome::resting);
        CHECK(run.begin({.period = "tuesday"}).rest > 50min);
        CHECK(run.begin(tuesday).what == outcome::recent);
        run.rested();
        CHECK(run.begin(tuesday).what == outcome::recent);
        CHECK(run.begin({.period = "tuesday", .skip_if_within = 0us}).what == outcome::begun);
        seen = run.seen().value();
        CHECK_FALSE(seen.finished);
        CHECK(seen.period == "monday");
        CHECK(seen.rest == 0ms);
    }
}

TEST_CASE("a run that did not finish delays the next of its name, once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        runner run{database};
        const auto other = run.self().try_acquire("another", grant_id{100});
        REQUIRE(other);
        const auto& runs = run.runs();
        REQUIRE(runs.begin(run.self().db(),
                           {.name = "another", .session = run.self().id(), .token = *other}, soon())
                    .what == outcome::begun);
        run.hold();
        REQUIRE(run.begin({.at_least = 10min}).what == outcome::begun);
        run.hold();
        const auto delayed = run.begin({.lock_delay = 1h});
        CHECK(delayed.what == outcome::resting);
        CHECK(delayed.rest == 1h);
        const auto seen = run.seen().value();
        CHECK(seen.finished);  // as far as the next delay is concerned
        CHECK_FALSE(seen.ended);
        CHECK(seen.rest > 50min);
        CHECK_FALSE(run.seen("another").value().finished);
        CHECK(run.seen("another").value().rest == 0ms);

        const auto again = run.begin({.lock_delay = 2h});
        CHECK(again.what == outcome::resting);
        CHECK(again.rest <= 1h);
        run.rested();
        CHECK(run.begin({.lock_delay = 1h}).what == outcome::begun);

        // A longer rest stays.
        run.hold();
        REQUIRE(run.begin({.at_least = 3h}).what == outcome::begun);
        run.hold();
        CHECK(run.begin({.lock_delay = 1h}).what == outcome::resting);
        CHECK(run.seen().value().rest > 2h);
    }
}
