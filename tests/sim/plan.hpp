#pragma once

#include "random.hpp"
#include "scheduler.hpp"
#include <rowlock/lock_mode.hpp>
#include <rowlock/options.hpp>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sim {

/// The parts of a plan that a shrinking may leave out are numbered from 1 on, in the order in which
/// they are drawn: a process, then each of its threads, each followed by its operations; the
/// faults; the weather.
using item = std::size_t;
using item_set = std::set<item>;

/// Such as `3-17,40`.
[[nodiscard]] std::string to_text(const item_set& items);
/// @throws std::invalid_argument
[[nodiscard]] item_set parse_items(std::string_view text);

/// What a thread acquires; or, the last ones, what else it does.
enum class hold_kind : unsigned char {
    lease,
    several,
    shared_mutex,
    several_modes,
    permits,
    mutex,
    recursive_mutex,
    office,         ///< of an election
    run,            ///< once in a period
    offered_lease,  ///< of another process, or thread
    quorum,         ///< a lock over the members of a quorum
    latch,          ///< begins it if it is over, counts down or is a party, and waits
    barrier,        ///< enters and leaves
    request,        ///< that a holder gives its hold up
    force,          ///< takes a holder its hold
    limit,          ///< says how long a name may be held
    watch,          ///< follows the holders of a name
};

/// How it asks.
enum class manner : unsigned char {
    once,        ///< try_acquire
    for_a_time,  ///< try_acquire_for
    barging,     ///< the same, past the queue
    limited,     ///< acquire, with a max_duration
    patient,     ///< acquire
};

/// How it gives back.
enum class ending : unsigned char {
    release,
    destructor,
    on_commit,  ///< leases: in a transaction of the caller
    offer,      ///< leases: to another process; later it is released
};

/// A thread thinks, acquires, works, and gives back.
struct operation {
    hold_kind kind = hold_kind::lease;
    hold_kind target = hold_kind::lease;  ///< of a request, a force, a limit
    manner how = manner::once;
    std::vector<std::string> names{};
    std::vector<lock_mode> modes{};  ///< of each name
    lock_mode mode = lock_mode::exclusive;
    std::optional<lock_mode> next_mode{};  ///< upgraded, or downgraded to, half way through
    i64 permits = 1;
    i64 gives_back = 0;              ///< permits, half way through
    std::optional<i64> extension{};  ///< of a max_duration, half way through
    int depth = 1;                   ///< of a recursive mutex
    i64 think = 0, patience = 0, max_duration = 0, work = 0;
    bool listens = true;  ///< to lost()
    bool stops = true;    ///< when held() has turned false; otherwise it works on
    bool fences = false;  ///< writes what the lock protects, in a fenced transaction
    ending end = ending::release;
    int priority = 0;      ///< of a candidate
    bool chooses = false;  ///< its successor, among the candidates
};

struct user {
    std::vector<operation> operations{};
};

/// A simulated process: one client, some threads.
struct process {
    i64 host = 0;
    double clock_rate = 1;
    i64 clock_origin = 0;
    bool stalls = false;
    client_options options{};
    bool has_owner = false;  ///< a name of its own: whoever starts in its place has it too
    /// If it starts in the place of one with an owner: it takes its holds over, and so it uses
    /// them.
    std::optional<operation> takes_over{};
    std::vector<user> users{};
};

enum class fault_kind : unsigned char {
    pause,       ///< of a process, for `lasts`
    kill,        ///< of a process; a successor may start
    cut_off,     ///< a process does not reach the database, for `lasts`
    down,        ///< the database answers nobody, for `lasts`
    clock_back,  ///< the database's clock is set back by `lasts`
    change,      ///< the weather is another from here on

    // Of a member of the quorum, by `victim`.
    member_down,   ///< answers nobody, for `lasts`
    member_crash,  ///< ends its connections, and rolls back
    member_back,   ///< is replaced by a server that knows what it knew `lasts` before
};

enum class hazard_kind : unsigned char {
    slow,
    slow_answers,
    lost_request,
    lost_reply,
    late,
    cut,
    full,
    refused,
    lost_change,
    lost_mail,
    late_mail
};

/// One thing that may go wrong, and how often.
struct hazard {
    hazard_kind kind{};
    double chance = 0;
    i64 longest = 0;
    std::optional<u64> victim{};  ///< for slow answers: of one process alone
};

struct fault {
    fault_kind kind{};
    i64 when = 0;
    i64 lasts = 0;
    u64 victim = 0;  ///< of the processes that live then, by this number modulo theirs
    std::optional<process> successor{};
    std::vector<hazard> hazards{};
    u64 members = 0;  ///< bits: the members of a quorum that meet the same as the database
};

/// What the database is to the client: nothing of this for a file.
struct server_traits {
    bool is_server = false;       ///< it has a link, and an identity
    bool many_writers = false;    ///< batches, pools and waits as where rows are locked
    bool proves_writers = false;  ///< a datagram that proves a secret is believed at once
    bool notifies = false;        ///< clients listen, and are told of their grants
};

/// All that is chosen before a simulation runs. What is random while it runs (the schedule, the
/// delays, which statements meet a hazard) is drawn from another stream of the seed.
struct plan {
    policy scheduling{};
    i64 ttl = second;
    int names = 1;
    i64 permits = 3;            ///< the capacity of the semaphore
    i64 parties = 2;            ///< of a latch, and of a double barrier
    bool losses_count = false;  ///< of their parties
    server_traits database{};
    bool one_name = false;    ///< a shared_mutex has the name of a lease: they are one lock
    i64 members = 0;          ///< of a quorum; 0: there is none
    i64 enforces_within = 0;  ///< between two rounds of a reaper that is always there; 0: none is
    i64 heals_at = 0;         ///< from then on nothing goes wrong, and holds are short
    std::vector<process> processes{};
    std::vector<fault> faults{};
    item items = 0;  ///< how many there are, those left out included
};

/// Which faults there may be.
enum class climate : unsigned char {
    mixed,         ///< any; a tenth of the seeds have only the last
    calm,          ///< none
    slow_answers,  ///< slow answers and processes that are cut off: hard on the trust window
};

/// Each seed has its own mix of clients, operations and faults ("swarm testing").
/// @param without left out; the rest is as it would be
[[nodiscard]] plan draw_plan(u64 seed, climate with, const item_set& without = {});

}  // namespace rowlock::sim
