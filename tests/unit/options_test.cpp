// Invalid options are refused before a connection is opened, and the error says what to write
// instead.

#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;

namespace {

/// A database that must not be used.
sql::connection_source nobody() {
    return {sql::dialect::postgresql,
            [](sql::deadline) -> std::unique_ptr<sql::connection> {
                throw std::logic_error{"connected"};
            },
            "nobody"};
}

/// The error for refused options, or an empty string if they are accepted.
std::string refusal_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::invalid_options);
        CHECK_FALSE(failure.retryable());
        return failure.what();
    }
    return {};
}

std::string refusal(client_options options) {
    return refusal_of([&] { const client made{nobody(), std::move(options)}; });
}

bool says(const std::string& words, std::string_view what) {
    INFO(words);
    return words.find(what) != std::string::npos;
}

template <typename Enum>
Enum beyond(Enum last) {
    return static_cast<Enum>(static_cast<unsigned char>(last) + 1);
}

}  // namespace

TEST_CASE("a client's options for waiting are validated by its constructor") {
    CHECK(refusal(client_options{}).empty());
    for (const auto interval :
         {0ms, -1ms, std::chrono::milliseconds::min(), std::chrono::milliseconds{24h} + 1ms,
          std::chrono::milliseconds::max()}) {
        CHECK(says(refusal({.poll_interval = interval}),
                   "poll_interval must be positive and at most one day"));
    }
    CHECK(refusal({.poll_interval = 1ms}).empty());
    CHECK(refusal({.poll_interval = 24h}).empty());

    for (const auto each : {wakeup_mode::automatic, wakeup_mode::database, wakeup_mode::polling}) {
        CHECK(refusal({.wake_ups = each}).empty());
    }
    CHECK(says(refusal({.wake_ups = beyond(wakeup_mode::polling)}),
               "wake_ups must be automatic, database or polling"));

    for (const auto each :
         {deadlock_detection::off, deadlock_detection::by_thread, deadlock_detection::by_client}) {
        CHECK(refusal({.deadlock_detection = each}).empty());
    }
    CHECK(says(refusal({.deadlock_detection = beyond(deadlock_detection::by_client)}),
               "deadlock_detection must be off, by_thread or by_client"));
}

TEST_CASE("times too long to be added are refused, or mean no limit") {
    constexpr auto endless = std::chrono::milliseconds::max();
    CHECK(says(refusal({.heartbeat = endless}), "must be less than ttl"));
    CHECK(says(refusal({.margin = endless}), "must be less than ttl"));
    CHECK(says(refusal({.heartbeat = endless, .margin = endless}), "must be less than ttl"));
    CHECK(refusal({.retry = {.max_backoff = endless, .total = endless}}).empty());
}

TEST_CASE("the options of an acquire are validated before a statement is sent") {
    client locks{nobody(), {}};
    const auto acquired_with = [&](acquire_options options) {
        return refusal_of([&] { static_cast<void>(locks.acquire("job", options)); });
    };
    const auto tried_with = [&](acquire_options options) {
        return refusal_of([&] { static_cast<void>(locks.try_acquire("job", options)); });
    };
    const auto spinning = [&](spin_pauses pauses) {
        return acquired_with({.queueing = queueing::barging, .spin = pauses});
    };
    CHECK(says(spinning({.first = 0ms}), "the first pause of a spinning caller"));
    CHECK(says(spinning({.first = 25h}), "the first pause of a spinning caller"));
    CHECK(says(spinning({.first = 20ms, .longest = 19ms}), "the longest pause"));
    CHECK(says(spinning({.first = 20ms, .longest = 25h}), "the longest pause"));
    const auto never = beyond(queueing::barging);
    CHECK(says(acquired_with({.queueing = never}), "queueing must be fair or barging"));
    CHECK(says(tried_with({.queueing = never}), "queueing must be fair or barging"));
    CHECK(says(refusal_of([&] {
                   static_cast<void>(locks.try_acquire_for("job", 1s, {.queueing = never}));
               }),
               "queueing must be fair or barging"));
    CHECK(says(tried_with({.max_duration = 9ms}), "max_duration must be at least 10 ms"));
    CHECK(says(tried_with({.max_duration = 24h * 367}), "max_duration must be at most a year"));
    CHECK(says(tried_with({.note = std::string(1001, 'x')}), "1000 bytes"));
}
