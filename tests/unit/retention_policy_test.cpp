// When a client keeps a lease after its release, and how many tokens it reserves.

#include "lock/session/retained_leases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

using namespace std::chrono_literals;
using rowlock::detail::retention_policy;

namespace {

/// How many releases in a row, each of the token after the one before, make the lease worth
/// keeping.
int releases_until_kept(retention_policy& policy, std::int64_t& token) {
    for (int count = 1; count <= 2 * retention_policy::most_needed; ++count) {
        if (policy.released(++token, 0s)) return count;
    }
    return 0;
}

}  // namespace

TEST_CASE("a lease is retained at the second release in a row") {
    retention_policy policy;
    std::int64_t token = 10;
    CHECK(releases_until_kept(policy, token) == 2);
}

TEST_CASE("a grant of another client in between begins the row anew") {
    retention_policy policy;
    CHECK_FALSE(policy.released(10, 0s));
    CHECK_FALSE(policy.released(12, 0s));
    CHECK(policy.released(13, 0s));
}

TEST_CASE(
    "a waiter begins the row anew, and nothing is kept while clients may remember the queue") {
    retention_policy policy;
    CHECK_FALSE(policy.released(10, 5s));
    policy.contended(5s);
    CHECK_FALSE(policy.released(11, 6s));
    CHECK_FALSE(policy.released(12, 6s));
    CHECK(policy.released(13, 5s + retention_policy::quiet));
    policy.interrupted();
    CHECK_FALSE(policy.released(14, 6500ms));
    CHECK(policy.released(15, 6500ms));
}

TEST_CASE(
    "retentions that were recalled too soon double the row, up to a limit, and good ones halve "
    "it") {
    retention_policy policy;
    std::int64_t token = 10;
    int needed = 2;
    for (int i = 0; i < 12; ++i) {
        CHECK(releases_until_kept(policy, token) == needed);
        policy.ended(retention_policy::bad - 1, true, token += 16);
        needed = std::min(2 * needed, retention_policy::most_needed);
        CHECK(policy.needed() == needed);
    }
    CHECK(needed == retention_policy::most_needed);
    for (int i = 0; i < 12; ++i) policy.ended(retention_policy::good, true, token);
    CHECK(policy.needed() == retention_policy::least_needed);
}

TEST_CASE("a retention that was neither good nor bad changes nothing, and one never used is bad") {
    retention_policy policy;
    policy.ended(retention_policy::bad, true, 10);
    policy.ended(retention_policy::good - 1, true, 10);
    policy.ended(1, false, 10);
    CHECK(policy.needed() == 2);
    policy.ended(0, false, 10);
    CHECK(policy.needed() == 4);
}

TEST_CASE("the block of tokens grows while most of it is used, and shrinks again") {
    retention_policy policy;
    CHECK(policy.next_block(0) == retention_policy::least_block);
    CHECK(policy.next_block(15) == 64);
    CHECK(policy.next_block(40) == 256);
    CHECK(policy.next_block(100) == 256);
    CHECK(policy.next_block(10) == 128);
    std::int64_t block = 128;
    for (int i = 0; i < 20; ++i) block = policy.next_block(block);
    CHECK(block == retention_policy::most_block);
    for (int i = 0; i < 30; ++i) block = policy.next_block(0);
    CHECK(block == retention_policy::least_block);
}
