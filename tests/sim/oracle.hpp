#pragma once

#include "scheduler.hpp"

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::sim {

/// Which promise is broken.
enum class violation : unsigned char {
    none,
    exclusion,   ///< what is believed at one true time does not fit together
    token,       ///< it does not rise
    revival,     ///< held() is true after lost()
    margin,      ///< the next holder comes too soon after lost()
    order,       ///< a waiter is overtaken
    early,       ///< client::holds() knows more than callers were given
    partial,     ///< some of several locks, and not all
    repeated,    ///< two runs of one period finish
    meeting,     ///< a latch or a barrier opens early, or late, or has two answers
    successor,   ///< another candidate leads than the one that was chosen
    limit,       ///< a hold outlasts the limit of its name
    deaf,        ///< a holder believes in a hold long after it was taken by force
    taken_over,  ///< a client that came back did not get all that it had
    outdated,    ///< a watch does not show a change
    fence,       ///< a fenced transaction commits after a newer one
    wait,        ///< a call does not end in time
    deadlock,    ///< no thread can run
    leak,        ///< rows remain, or a lock stays held
    error,       ///< a call fails in a way that is not documented
};
[[nodiscard]] std::string_view to_string(violation kind) noexcept;

/// What a thread believes to hold.
struct belief {
    node* where = nullptr;
    std::string name{};
    /// What it takes of the capacity of that name: any two that exclude each other exceed it.
    i64 weight = 1, capacity = 1;
    bool rises = true;  ///< its token is greater than those of all such beliefs before
    i64 token = 0;
    i64 session = 0;
    std::function<bool()> held{};
    i64 since = 0;  ///< when the database granted it, at the latest
    i64 margin = 0;
    bool steady = true;     ///< its node was never stopped or stalled
    i64 lost_at = forever;  ///< when lost() fired
};

/// Sees in true time who believes to hold what, and compares it with the promises of
/// docs/guarantees.md. It asks each belief by the clock of its own node whether held() is true.
///
/// To ask closes a trust window that has passed, as a watchdog would.
class oracle {
public:
    explicit oracle(scheduler& of) : scheduler_{of} {}

    /// The first violation ends the simulation.
    void fail(violation kind, std::string text);
    [[nodiscard]] violation found() const noexcept { return found_; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

    /// @name Exclusion, tokens, the margin
    /// @{
    using handle = std::list<belief>::iterator;
    handle enter(belief made);
    void leave(handle which) { beliefs_.erase(which); }
    /// Its thread has just found it held.
    void affirms(handle which);
    void killed(const node& process);
    void stopped(const node& process);  ///< or stalled
    /// @}

    /// @name Forced releases
    ///
    /// Who loses a hold by force may believe in it a little longer, and excludes nobody.
    /// @{
    struct forced {
        std::string name{};
        i64 token = 0;    ///< leases: this one, and those before it that share its row
        i64 session = 0;  ///< of permits and modes; a mutex does not say its own
        [[nodiscard]] bool is(const belief& one) const {
            if (one.name != name) return false;
            return session != 0 && one.session != 0 ? one.session == session : one.token <= token;
        }
    };
    [[nodiscard]] bool is_forced(const belief& of) const;
    void forces(forced which) { forced_.push_back(std::move(which)); }
    /// It took effect: whatever becomes of its heartbeats, the holder knows a ttl later.
    void took(const forced& which, i64 ttl);
    /// The answer to a heartbeat that was sent then: this process knows of all that was taken
    /// before.
    void beats(int node_id, i64 sent);
    /// @}

    /// @name Limits of holds
    ///
    /// While a reaper is always there and nothing else goes wrong.
    /// @{
    /// @param time after its limit at which a hold is over; 0: nothing enforces it any more
    void enforces(i64 time) { enforced_within_ = time; }
    /// A call begins that changes the limit: whether it has is not known yet.
    void changes_limit(const std::string& name);
    /// It has answered. Of calls that overlap either may have been the last: then the limit is not
    /// known. So it stays after a call that has failed, whose statement may run later.
    /// @param longest 0: it has removed the limit
    void limited(const std::string& name, i64 longest);
    /// @}

    /// @name Elections
    /// @{
    /// A leader was told that this session leads next, in that term.
    void chosen(i64 term, i64 session);
    void leads(i64 term, i64 session);
    /// @}

    /// A run of that period has finished.
    void run_finished(const std::string& period) {
        if (!periods_.insert(period).second) fail(violation::repeated, "period " + period);
    }

    /// @name What client::holds() says
    ///
    /// A name counts as held from the return of the call that acquired it to its release. So if
    /// holds() is true while no caller has been given the name, one of the calls under way has to
    /// return it.
    /// @{
    using call_id = u64;
    [[nodiscard]] call_id call_begins(const node& process, const std::string& name);
    void call_ends(const node& process, const std::string& name, call_id which, bool given);
    void given_back(const node& process, const std::string& name);
    /// Calls holds() and judges its answer.
    void check_holds(const node& process, const std::string& name,
                     const std::function<bool()>& holds);
    /// @}

    /// @name The order of a queue
    ///
    /// If one call had enqueued before another asked for its entry, or for the lock, and that entry
    /// was served, it has the smaller token.
    /// @{
    void asks(u64 thread, const std::string& name);
    struct entry {
        i64 asked_at = 0;
        i64 made_at = 0;
        bool limited = false;  ///< it is passed over from some time on
    };
    /// The database has an entry of it: the id of the grant to which it leads.
    void enqueued(u64 thread, const std::string& name, i64 grant_id, const entry& made);
    /// The database's clock was set: an entry that was passed over may be served after all, if its
    /// thread is too slow to give it up.
    void clock_set() { clock_set_at_ = scheduler_.now(); }
    /// `fair`: it did not pass the queue.
    void granted(u64 thread, i64 token, i64 grant_id, bool fair);
    void gave_up(u64 thread) { queue_.erase(thread); }
    /// @}

private:
    struct calls {
        i64 given = 0;    ///< holds that callers have
        u64 changes = 0;  ///< of that
        std::set<call_id> under_way{};
        std::list<std::set<call_id>> suspects{};  ///< of each, one has to be given the name
    };
    struct waiting {
        std::string name{};
        i64 asked_at = 0;
        i64 grant_id = 0;
        i64 enqueued_at = forever;
        bool limited = false;
    };
    struct grant {
        i64 token = 0;
        i64 asked_at = 0;  ///< when its caller began, or asked for its queue entry
    };

    [[nodiscard]] bool ask(const belief& of);
    void require_known(const forced& which, const belief& of);
    void look_at_limit(const std::string& name);
    [[nodiscard]] calls& calls_of(const node& process, const std::string& name) {
        return calls_[{process.id, name}];
    }

    scheduler& scheduler_;
    i64 clock_set_at_ = 0;
    violation found_ = violation::none;
    std::string text_;
    std::list<belief> beliefs_;
    std::map<std::string, i64> tokens_;
    std::list<forced> forced_;
    std::list<std::pair<i64, forced>> taken_;  ///< with the time by which it was
    struct longest_hold {
        i64 length = 0, known_at = 0;
    };
    std::map<std::string, longest_hold> limits_;
    struct limit_calls {
        int under_way = 0;
        bool overlap = false;
    };
    std::map<std::string, limit_calls> limit_calls_;
    i64 enforced_within_ = 0;
    std::map<i64, i64> chosen_, leaders_;  ///< sessions, by term
    std::set<std::string> periods_;
    std::map<std::pair<int, std::string>, calls> calls_;
    u64 last_call_ = 0;
    std::map<u64, waiting> queue_;
    std::map<std::string, std::list<grant>> grants_;
};

}  // namespace rowlock::sim
