#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <string>

/// A deterministic simulation of quorum locks: N stores, many clients, one name, no database and no
/// thread. The clients decide by the product's own protocol::quorum_ballot; the stores do
/// what its statements do. Times in microseconds; all randomness comes from the seed.
namespace rowlock::simulation {

using i64 = std::int64_t;
constexpr i64 ms = 1000, second = 1000 * ms;

/// What becomes of a store that has forgotten its latest commits.
enum class amnesia : unsigned char {
    none,
    readmitted,        ///< the rule: epoch and seal, wait, copy, then ready
    votes_at_once,     ///< and the following: what goes wrong without a part of it
    waits_and_raises,  ///< 2^32 above what it remembers, instead of the copy
    waits_only,
    copies_only,
    undetected,
};

struct world {
    int stores = 3, majority = 2, clients = 5;
    i64 ttl = 2 * second, margin = ttl / 6, heartbeat = ttl / 3;
    i64 delay_min = 200, delay_max = 600;  ///< of a message
    std::array<i64, 5> further{};          ///< and to or from each store
    i64 work_min = 1 * ms, work_max = 10 * ms, think = 2 * ms;
    double long_work = 0.01;

    bool faults = true;
    double loss = 0.01, tail = 0.01, long_tail = 0.002;
    i64 pause_every = 4 * second, crash_every = 8 * second, client_crash_every = 20 * second,
        partition_every = 3 * second, amnesia_every = 8 * second;
    double drift = 0.01;  ///< of clock rates
    amnesia forgets = amnesia::readmitted;
    int dead_store = -1;
    bool former_primaries = false;  ///< an amnesiac's predecessor lives on, for some clients

    // What the controls leave out.
    bool epochs = true;
    bool excludes =
        true;  ///< what hangs on a former primary counts no more once the epoch is known
    bool window_from_request = true;  ///< and less the margin
    bool releases_by_grant = true;
    bool grants_by_session = true;  ///< a grant is known by its id and its session
    bool writes_back = true, shortest_of_majority = true, latches = true, seals = true;

    i64 grants = 2000;  ///< where a run ends
    i64 longest = i64{6} * 3600 * second;
};

/// How many writes a guard of the protected data let through that it should not have.
struct guard_report {
    i64 late = 0;    ///< after a newer holder began
    i64 behind = 0;  ///< after a write with a greater token
};

struct report {
    i64 grants = 0;
    i64 overlaps = 0;     ///< two clients believed at once
    i64 token_falls = 0;  ///< a belief began with a token not above all before it
    i64 counted = 0;      ///< stores, by a holder at its release
    i64 ahead = 0;        ///< of these, those that refuse its guard: they know a greater token
    i64 losses = 0, rests = 0, messages = 0, time = 0, amnesias = 0;
    i64 writes = 0;  ///< of the protected data, each judged by four guards
    guard_report unguarded, by_lease_row, by_row_and_token, by_data_token;
    i64 longest_wait = 0, least_served = 0, most_served = 0;
    double p50 = 0, p99 = 0;

    [[nodiscard]] bool safe() const noexcept { return overlaps == 0 && token_falls == 0; }
    void add(const report& other);
};
[[nodiscard]] std::string to_string(const report& of);

[[nodiscard]] report run(const world& of, std::uint64_t seed);
/// So many seeds, each with weather of its own.
[[nodiscard]] report run_many(const world& of, int seeds, std::uint64_t first);

}  // namespace rowlock::simulation
