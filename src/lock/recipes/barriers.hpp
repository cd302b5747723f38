#pragma once

#include "lock/client/engine.hpp"
#include "lock/protocol/barrier/barrier_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rowlock::detail {

/// errc::broken: for a round that there is no more.
[[nodiscard]] error no_such_generation();
/// errc::invalid_options.
[[nodiscard]] error of_the_other_kind(protocol::barrier_kind wanted);

/// What a client does in latches and double barriers, which differ in their protocol::barrier_kind.
/// Thread-safe.
class barriers : public engine_part {
public:
    using time_point = std::chrono::steady_clock::time_point;
    using answer_of = protocol::answer protocol::barrier_round::*;

    explicit barriers(engine& of)
        : engine_{of},
          context_{of.context()},
          sessions_{of.sessions()},
          retries_{of.retries()},
          waiting_{of.waiting()},
          protocol_{of.context().statements} {}

    /// As protocol::barrier_protocol: begins a round.
    [[nodiscard]] protocol::joining begin(protocol::admission what);
    /// Joins or enters one, in a live session of this client. Returns no_round of generation 0 as
    /// well if a stop was requested while a failure was repeated.
    [[nodiscard]] protocol::joining join(protocol::admission what,
                                         time_point until = time_point::max(),
                                         const std::stop_token& stop = {});
    /// As protocol::barrier_protocol. Nullopt also if a stop was requested while a failure was
    /// repeated.
    std::optional<protocol::round_state> change(const protocol::party_id& of,
                                                protocol::barrier_event what,
                                                time_point until = time_point::max(),
                                                const std::stop_token& stop = {});
    /// Breaks the latest round if it is pending. Returns whether it did.
    /// @throws error errc::invalid_options if the name is of another kind
    bool reset(const std::string& name, protocol::barrier_kind kind);
    /// A round, or the latest for 0.
    /// @throws error as reset()
    [[nodiscard]] std::optional<protocol::round_state> look(const std::string& name,
                                                            std::int64_t generation,
                                                            protocol::barrier_kind kind);

    /// Waits until the round has given that answer, and ends the parties that are lost. Returns
    /// nullopt if the time is up or a stop was requested; of generation 0, which is the latest one
    /// when it is first seen, it waits for the first one.
    /// @throws error errc::broken if the round is there no more
    [[nodiscard]] std::optional<protocol::barrier_round> wait(const std::string& name,
                                                              std::int64_t generation,
                                                              answer_of which, time_point until,
                                                              const std::stop_token& stop);

    /// Applies the event with which a party ends that will not be used any more: in this call, or
    /// later by the heartbeat.
    void give_up(protocol::party_id mine, protocol::barrier_event what) noexcept;
    /// Ends the parties that give_up() could not end. A failure of one is for the next time.
    void work(sql::connection& db, sql::deadline until, bool at_once) noexcept override;
    [[nodiscard]] nanoseconds due() const override;

    [[nodiscard]] rowlock::grant_id next_id() { return rowlock::grant_id{context_.next_id()}; }

private:
    using given_up = std::pair<protocol::party_id, protocol::barrier_event>;

    void keep_for_later(std::list<given_up> all) noexcept;
    [[nodiscard]] std::optional<protocol::round_state> look_and_sweep(const protocol::party_id& of,
                                                                      sql::connection& db,
                                                                      sql::deadline until);

    engine& engine_;
    client_context& context_;
    session_registry& sessions_;
    retry_loop& retries_;
    client_waiters& waiting_;
    const protocol::barrier_protocol protocol_;
    mutable std::mutex mutex_;
    std::list<given_up> given_up_;
    nanoseconds due_{0};  ///< of those
};

/// The party of a latch_party or a barrier_party. Its destructor gives the party up, unless it is
/// done: also while it joins, so that a call which fails leaves none.
struct round_member {
    round_member(std::weak_ptr<engine> engine_, protocol::party_id id_,
                 protocol::barrier_event end_)
        : of{std::move(engine_)}, id{std::move(id_)}, end{end_} {}
    round_member(const round_member&) = delete;
    round_member& operator=(const round_member&) = delete;
    ~round_member();

    const std::weak_ptr<engine> of;
    protocol::party_id id;
    protocol::barrier_event end;  ///< withdraw: a party that its caller never had is not lost
    bool done = false;            ///< arrived, departed, or not in
};

}  // namespace rowlock::detail
