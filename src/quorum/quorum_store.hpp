#pragma once

#include "base/clock.hpp"
#include "quorum/member_access.hpp"
#include "quorum/quorum_members.hpp"
#include "quorum/quorum_protocol.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/quorum.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// How long a release waits for the members.
constexpr std::chrono::seconds longest_release{1};

/// One member of a quorum, as a client uses it. Thread-safe.
class quorum_store {
public:
    quorum_store(sql::connection_source source, client_options options, quorum_members& members,
                 std::size_t position);

    /// Acquires the lease of that name there; empty if a stop was requested.
    /// @throws error as client::acquire()
    [[nodiscard]] std::optional<lease> acquire(const lock_name& name, std::stop_token stop,
                                               const std::string& note);
    /// As protocol::quorum_protocol; nullopt also after a failure, which is kept for people.
    [[nodiscard]] std::optional<std::int64_t> raise(const lease& held,
                                                    std::optional<std::int64_t> token) noexcept;
    void seal(const std::string& name, std::int64_t token) noexcept;
    /// As caller_transactions::fence_quorum_token().
    void fence_token(sql::connection& db, const std::string& name, std::int64_t token,
                     const fence_options& options);
    /// Reads the member's row. Returns whether the epoch rose.
    bool look();
    /// The same, unless the member votes as far as is known.
    bool look_if_new() { return !votes_ && look(); }

    /// A question is on its way; answered() follows unless none comes.
    /// Returns whether no other question was without an answer.
    bool asked() noexcept;
    void answered() noexcept;
    void failed(const error& why) noexcept;
    /// Of the latest claims and writes: a decaying maximum.
    [[nodiscard]] nanoseconds round_trip() const noexcept { return round_trip_; }
    /// As member_access::server_of(), and whether that server is the member still.
    [[nodiscard]] std::string server_of(const lease& held) const;
    [[nodiscard]] bool is_member(const std::string& server) const;
    /// Whether it may vote, and has answered within that time whatever it was asked.
    [[nodiscard]] bool answers(nanoseconds within) const noexcept;
    /// Whether a release may wait for it: it owes no answer since so long.
    [[nodiscard]] bool may_answer() const noexcept;
    [[nodiscard]] quorum_member_info info() const;
    /// The latest failure since then, if nothing was answered after it.
    [[nodiscard]] std::optional<error> failure_since(nanoseconds time) const;
    [[nodiscard]] std::string server() const;
    /// Ends its client; nothing else runs or is called any more but what tells of it.
    void close() noexcept;

private:
    [[nodiscard]] client_options with_events(client_options options);
    [[nodiscard]] protocol::known_quorum known() const;
    /// @throws error errc::lock_lost after close()
    [[nodiscard]] std::shared_ptr<member_access> access() const;

    /// Outlives this: an event may come late.
    struct health {
        std::atomic<nanoseconds> asked_at{nanoseconds::max()};  ///< the first without an answer
        std::mutex mutex;
        std::optional<error> failure{};
        nanoseconds failed_at{0};
    };
    static void answered(health& state) noexcept;

    quorum_members& members_;
    const std::size_t position_;
    const std::string description_;
    const std::chrono::milliseconds ttl_;
    mutable std::mutex mutex_;
    std::string server_;
    std::atomic<bool> votes_{false};
    const std::shared_ptr<health> health_ = std::make_shared<health>();
    std::atomic<nanoseconds> round_trip_{nanoseconds{0}};
    const base::clock clock_;
    std::shared_ptr<member_access> access_;
};

}  // namespace rowlock::detail
