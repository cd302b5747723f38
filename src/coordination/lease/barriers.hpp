#pragma once

#include "coordination/protocol/barrier/barrier_protocol.hpp"
#include "coordination/queue/client_waiters.hpp"
#include "coordination/session/client_context.hpp"
#include "coordination/session/retry_loop.hpp"
#include "coordination/session/session_registry.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

/// What a client does in latches and double barriers. Thread-safe.
class barriers {
public:
    using time_point = std::chrono::steady_clock::time_point;
    using answer_of = protocol::answer protocol::barrier_round::*;

    /// A party of this client. Its id is chosen before it joins.
    struct party {
        std::string name{};
        std::int64_t generation = 0;
        rowlock::grant_id id{};

        [[nodiscard]] protocol::party_id view() const {
            return {.name = name, .generation = generation, .id = id};
        }
    };

    /// @param on_work the heartbeat is to call settle() soon
    barriers(client_context& context, session_registry& sessions, retry_loop& retries,
             client_waiters& waiting, std::function<void()> on_work)
        : context_{context},
          sessions_{sessions},
          retries_{retries},
          waiting_{waiting},
          on_work_{std::move(on_work)},
          protocol_{context.statements} {}

    [[nodiscard]] protocol::joining begin(const std::string& name,
                                          const protocol::round_terms& terms);
    [[nodiscard]] protocol::joining join(const party& mine, protocol::party_stage stage);
    [[nodiscard]] protocol::joining enter(const party& mine, const protocol::round_terms& terms,
                                          time_point until, const std::stop_token& stop);
    /// As protocol::barrier_protocol.
    std::optional<protocol::round_state> arrive(const party& mine);
    /// Nullopt also if a stop was requested while a failure was repeated.
    std::optional<protocol::round_state> depart(const party& mine, time_point until,
                                                const std::stop_token& stop);
    std::optional<protocol::round_state> withdraw(const party& mine, time_point until);
    bool reset(const std::string& name, std::int64_t generation);
    [[nodiscard]] std::optional<protocol::round_state> look(const std::string& name,
                                                            std::int64_t generation);

    /// Waits until the round has given that answer, and ends the parties that are lost. Returns
    /// nullopt if the time is up or a stop was requested; of generation 0, which is the latest one
    /// when it is first seen, it waits for the first one.
    /// @throws error errc::broken if the round is there no more
    [[nodiscard]] std::optional<protocol::barrier_round> wait(const std::string& name,
                                                              std::int64_t generation,
                                                              answer_of which, time_point until,
                                                              const std::stop_token& stop);

    /// A party that will not be used any more: of a latch it counts as lost, of a double barrier it
    /// departs, or takes its entry back. In this call, or later by the heartbeat.
    /// @param unsure the reply to its joining was lost: it may be there, or come later
    void give_up(party mine, protocol::barrier_kind kind, bool unsure) noexcept;
    /// Ends the parties that give_up() could not end. A failure of one is for the next time.
    void settle(sql::connection& db, sql::deadline until, bool at_once = false) noexcept;
    /// When settle() is to be called; base::alarm::never if there is nothing.
    [[nodiscard]] nanoseconds due() const;

    [[nodiscard]] rowlock::grant_id next_id() { return rowlock::grant_id{context_.next_id()}; }
    [[nodiscard]] client_context& context() noexcept { return context_; }

private:
    struct given_up {
        party of;
        protocol::barrier_kind kind;
        bool unsure;  ///< no caller had it: it may be there, or not, once its row can be locked
    };
    template <typename Attempt>
    protocol::joining in_session(Attempt attempt, sql::connection& db, sql::deadline until);
    [[nodiscard]] bool is_past(const std::string& name, std::int64_t generation, time_point until,
                               const std::stop_token& stop);
    void end(const given_up& one, sql::connection& db, sql::deadline until);
    [[nodiscard]] std::optional<protocol::round_state> look_and_sweep(const std::string& name,
                                                                      std::int64_t generation,
                                                                      sql::connection& db,
                                                                      sql::deadline until);

    client_context& context_;
    session_registry& sessions_;
    retry_loop& retries_;
    client_waiters& waiting_;
    const std::function<void()> on_work_;
    const protocol::barrier_protocol protocol_;
    mutable std::mutex mutex_;
    std::vector<given_up> given_up_;
    nanoseconds due_{0};  ///< of those
};

}  // namespace rowlock::detail
