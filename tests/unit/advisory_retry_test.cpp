#include "support/failure.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;

TEST_CASE("the policy's total time also bounds the attempts at the first connection") {
    // On MySQL the key of a name depends on the connection's schema.
    int attempts = 0;
    const sql::connection_source unreachable{
        sql::dialect::mysql,
        [&](sql::deadline) -> std::unique_ptr<sql::connection> {
            ++attempts;
            std::this_thread::sleep_for(2ms);
            throw error{errc::database_unreachable, "away"};
        },
        "a server that is away"};
    advisory_client locks{unreachable, {.retry = {.attempts = 5, .backoff = 0ms, .total = 1ms}}};
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock("report")); }) ==
          errc::database_unreachable);
    CHECK(attempts == 1);
}
