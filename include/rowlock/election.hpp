#pragma once

#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/timeout.hpp>
#include <rowlock/watch.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup elections
/// One leader among many candidates, and observers that know who it is:
///
///     rowlock::election office{locks, "scheduler", {.value = "http://10.0.0.7:8080"}};
///     office.lead(stop, [](rowlock::leadership& term) { while (term.held()) work(term.term()); });
///
/// The leader is the holder of the lease `name`, a term is its fencing token, a candidate is a
/// waiter in its queue, and a value is its note: all that is promised of leases holds here. A
/// client that must never lead does not campaign; it observes.
///
/// @{

class election;

/// Options of a candidate.
struct election_options {
    /// What observers learn of this client when it leads, such as its address: from its first
    /// moment as leader on. Up to 1 000 bytes of UTF-8.
    std::string value = {};
    /// When leadership is given, the candidate with the greatest priority leads; of several the one
    /// that came first. A leader is not deposed by a candidate with a greater one. -1 000 to 1 000.
    int priority = 0;
};

/// The leader, for observers. Text comes from other programs: escape it for a terminal.
struct leader_info {
    fencing_token term{};  ///< greater than that of every earlier leader
    std::string value{};   ///< of election_options, or the latest that it proclaimed
    holder_info who{};     ///< the client that leads
};

/// What an observer sees.
struct election_state {
    fencing_token term{};                 ///< the latest; 0: there was none
    std::optional<leader_info> leader{};  ///< empty: there is none now
};

/// A client that waits for its turn to lead, for people. Text comes from other programs: escape it
/// for a terminal.
struct candidate_info {
    session_id session{};                 ///< its session in the database
    int priority = 0;                     ///< election_options::priority
    std::string value{};                  ///< election_options::value
    std::string owner{};                  ///< client_options::owner, or a random one
    std::string host{};                   ///< its host name
    std::string program{};                ///< client_options::program
    std::int64_t pid = 0;                 ///< of its process
    std::chrono::milliseconds waited{0};  ///< since it entered the queue
};

/// A term of office: ends when the object is destroyed, by step_down(), or with the lease. Threads
/// as for a lease.
class [[nodiscard]] leadership {
public:
    /// `other` leads nothing then.
    leadership(leadership&&) noexcept = default;
    /// Ends the term it held before, as the destructor does.
    leadership& operator=(leadership&&) noexcept = default;
    ~leadership() = default;

    /// The number of the term: a fencing token, greater than those of all terms before.
    [[nodiscard]] fencing_token term() const noexcept { return lease_.token(); }
    /// Whether this client may still trust that it leads. No round trip.
    [[nodiscard]] bool held() const noexcept { return lease_.held(); }
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// Stopped when leadership is lost. The next leader does not follow before the margin
    /// (lease.hpp).
    [[nodiscard]] std::stop_token lost() const { return lease_.lost(); }
    /// For fence() and whatever else takes a lease.
    [[nodiscard]] const rowlock::lease& lease() const noexcept { return lease_; }

    /// Changes the value; observers see it within a poll. One round trip. Waits for a fenced
    /// transaction of this term, up to statement_timeout; one at REPEATABLE READ that began before
    /// may get errc::conflict from its fence.
    /// @throws error errc::lock_lost if leadership was lost, errc::not_owner if it is over;
    /// errc::invalid_options
    void proclaim(const std::string& value);

    /// Ends the term: the candidate with the greatest priority leads from the same commit on. Two
    /// round trips; without a candidate the office becomes vacant.
    /// @throws error as lease::release(): errc::lock_lost if it was lost before; after any other
    /// the term is over all the same
    void step_down();
    /// The same in favour of one candidate, whatever its priority and its place. Returns whether it
    /// leads now. If it is no candidate, nothing happens, and this client still leads; if it ceased
    /// to be one at the last moment, the next candidate leads, and held() is false. Three round
    /// trips. A fenced transaction at REPEATABLE READ that began before may get errc::conflict.
    /// @throws error as lease::release(), and errc::lock_lost if another client has the lease.
    /// After an error of the first two statements this client still leads: held() tells
    bool step_down(session_id to);

private:
    friend class election;
    explicit leadership(rowlock::lease held) : lease_{std::move(held)} {}

    rowlock::lease lease_;
};

/// Sees who leads. One thread at a time.
class [[nodiscard]] election_observer {
public:
    /// As lock_watch::next(): at once the first time, then whenever there is another leader, or
    /// none, or another value. Every leader is seen, or a later one; the last one always is.
    template <std::same_as<std::stop_token> Stop = std::stop_token>
    [[nodiscard]] std::optional<election_state> next(Stop stop = {}) {
        return state_of(changes_.next(std::move(stop)));
    }
    /// The same; nullopt also if nothing changed within `timeout`.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<election_state> next_for(
        const std::chrono::duration<Rep, Period>& timeout, const std::stop_token& stop = {}) {
        return state_of(changes_.next_for(timeout, stop));
    }

private:
    friend class election;
    explicit election_observer(lock_watch changes) : changes_{std::move(changes)} {}
    [[nodiscard]] static std::optional<election_state> state_of(std::optional<lease_info> seen);

    lock_watch changes_;
};

/// Campaigns for a client, and tells who leads. Thread-safe, except for moving. The client must
/// outlive it.
class election {
public:
    /// @throws error errc::invalid_options
    election(client& locks, const lock_name& name, election_options options = {});

    /// Waits until this client leads. Otherwise as client::acquire(): the candidacy survives the
    /// end of its session and an outage, at the end of the queue. A candidate that is elected while
    /// one with a greater priority waits hands the office on before it returns, and waits again, at
    /// the end of the queue: one or two round trips. A candidate that the leader before chose
    /// (leadership::step_down) does not.
    [[nodiscard]] leadership campaign();
    /// The same; empty if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<leadership> campaign(Stop stop) {
        return campaign_until(time_point::max(), stop);
    }
    /// One attempt; empty if there is a leader or a candidate.
    [[nodiscard]] std::optional<leadership> try_campaign();
    /// Waits up to `timeout`, or until `stop` is requested.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<leadership> try_campaign_for(
        const std::chrono::duration<Rep, Period>& timeout, const std::stop_token& stop = {}) {
        return campaign_until(detail::after(timeout), stop);
    }

    /// Campaigns and calls `work(leadership&)`, again and again as long as leadership was lost
    /// before the work returned. Steps down when it returns as leader, and returns true; returns
    /// false if `stop` was requested first. What the work throws ends the term, and is passed on,
    /// except errc::lock_lost once leadership is lost, as a fence throws it.
    /// @throws error as campaign() and leadership::step_down()
    template <std::invocable<leadership&> Work>
    bool lead(const std::stop_token& stop, Work&& work) {
        for (;;) {
            auto term = campaign(stop);
            if (!term) return false;
            try {
                work(*term);
            } catch (const error& failure) {
                if (failure.kind() != errc::lock_lost || term->held()) throw;
            }
            if (ended(*term)) return true;
            if (stop.stop_requested()) return false;
        }
    }

    /// Who leads now, by the database's clock. One round trip; needs no session.
    [[nodiscard]] std::optional<leader_info> leader();
    /// The candidates in the order in which they are to lead. One round trip; needs no session.
    [[nodiscard]] std::vector<candidate_info> candidates();
    /// An observer of this election. No round trip.
    [[nodiscard]] election_observer observe(const watch_options& options = {});

private:
    using time_point = std::chrono::steady_clock::time_point;

    std::optional<leadership> campaign_until(time_point until, const std::stop_token& stop);
    /// Steps down. Returns false if leadership was lost before.
    [[nodiscard]] static bool ended(leadership& term);

    client* locks_;
    lock_name name_;
    election_options options_;
};

/// @}

}  // namespace rowlock
