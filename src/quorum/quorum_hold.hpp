#pragma once

#include "base/clock.hpp"
#include "base/fork_guard.hpp"
#include "base/loss_notifier.hpp"
#include "base/worker.hpp"
#include "quorum/quorum_ballot.hpp"
#include "quorum/quorum_members.hpp"
#include "quorum/quorum_store.hpp"
#include "quorum/task_pool.hpp"
#include <rowlock/lease.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

class quorum_hold;

/// What all holds of one quorum_client share. Thread-safe.
class quorum_parts {
public:
    quorum_parts(std::vector<sql::connection_source> members, const client_options& options);
    quorum_parts(const quorum_parts&) = delete;
    quorum_parts& operator=(const quorum_parts&) = delete;
    ~quorum_parts() = default;

    [[nodiscard]] std::size_t size() const noexcept { return stores_.size(); }
    [[nodiscard]] quorum_store& store(std::size_t position) noexcept { return *stores_[position]; }
    [[nodiscard]] const protocol::quorum_terms& terms() const noexcept { return terms_; }
    [[nodiscard]] nanoseconds now() const noexcept { return clock_.now(); }
    /// A call that ends soon, or one that may wait for long.
    void post(std::function<void()> task) { tasks_.post(std::move(task)); }
    void post_wait(std::function<void()> task) { waits_.post(std::move(task)); }
    /// Requests a stop on a thread of its own: callbacks are the user's.
    void deliver(const std::stop_source& signal) noexcept { signals_.deliver(signal); }
    void poke() noexcept;
    void add(const std::shared_ptr<quorum_hold>& hold);
    /// A member has shown a later epoch: holds let go of servers that are members no more.
    void epoch_rose();
    /// Why no majority can be had: so many members have failed since then, and not answered after
    /// it.
    [[nodiscard]] std::optional<error> hopeless(nanoseconds since) const;
    [[nodiscard]] bool closed() const noexcept { return closed_; }
    /// Ends all holds, and waits for what they do.
    void close() noexcept;
    /// In a forked child: lets go of threads that belong to the parent.
    static void abandon(std::shared_ptr<quorum_parts> inherited) noexcept;

    const base::fork_guard fork{};

private:
    nanoseconds ring() noexcept;
    [[nodiscard]] std::vector<std::shared_ptr<quorum_hold>> holds();

    const base::clock clock_;
    protocol::quorum_terms terms_;
    quorum_members members_;
    std::vector<std::unique_ptr<quorum_store>> stores_;
    std::mutex mutex_;
    std::vector<std::weak_ptr<quorum_hold>> holds_;
    std::atomic<bool> closed_{false};
    // Two: a release must not wait for those that wait for it.
    task_pool waits_{task_pool::without_thread::refuses};
    task_pool tasks_{task_pool::without_thread::waits};
    base::loss_notifier signals_;
    std::unique_ptr<base::worker> alarms_;
};

/// One acquisition of a quorum lock, and what it holds: does what its ballot decides, each call to
/// a member on a thread of its own. Thread-safe. No mutex is held over a round trip.
class quorum_hold final : public protocol::quorum_view,
                          public std::enable_shared_from_this<quorum_hold> {
public:
    quorum_hold(std::shared_ptr<quorum_parts> parts, lock_name name, std::string note);

    enum class outcome : unsigned char {
        granted,
        given_up,  ///< the time is up or a stop was requested
        lost,      ///< before its caller received it: another hold may be granted
    };
    /// Unless it was granted, everything is given back. Called once.
    /// @throws error as quorum_client::acquire()
    outcome acquire(std::chrono::steady_clock::time_point until, const std::stop_token& stop);
    [[nodiscard]] const std::string& name() const noexcept { return name_.str(); }
    [[nodiscard]] std::int64_t token() const noexcept { return token_; }
    [[nodiscard]] bool held() noexcept;
    [[nodiscard]] nanoseconds remaining() noexcept;
    [[nodiscard]] int counted() noexcept;
    [[nodiscard]] std::stop_token lost() const { return lost_.get_token(); }
    /// Gives everything back; waits for the members that answer.
    void release() noexcept;
    /// The same without the wait. The client is destroyed if `lost` is said: a hold counts as lost.
    void let_go(bool lost = false) noexcept;
    /// The lease that counts at that member.
    /// @throws error errc::lock_lost, not_owner
    [[nodiscard]] std::shared_ptr<lease> counted_lease(std::size_t member);

    /// In a transaction that was fenced with counted_lease().
    void fence_token(sql::connection& db, std::size_t member, const fence_options& options);

    /// When tick() is due.
    [[nodiscard]] nanoseconds alarm() const noexcept { return alarm_; }
    void tick() noexcept;
    /// The server at that position is not the member any more.
    void drop(std::size_t member) noexcept;

    [[nodiscard]] nanoseconds trusted_until(int store, std::int64_t ask) const override;
    [[nodiscard]] bool answers(int store, nanoseconds now) const override;
    [[nodiscard]] nanoseconds round_trip() const override;
    [[nodiscard]] double random() override;

private:
    using callback = std::stop_callback<std::function<void()>>;
    /// What an ask has at a member.
    struct slot {
        std::int64_t ask = 0;
        std::stop_source stop{};
        std::shared_ptr<lease> held{};
        std::string server{};  ///< of the session that has it
        std::unique_ptr<callback> on_lost{};
    };

    template <typename Act>
    void decide(Act act) noexcept;
    void perform(const protocol::quorum_action& what);
    void ask_member(std::size_t member, std::int64_t ask, const std::stop_token& stop) noexcept;
    void granted(std::size_t member, std::int64_t ask, lease held);
    /// The call of that ask has returned.
    void settle(std::int64_t ask) noexcept;
    void raise(const protocol::quorum_action& what, const std::shared_ptr<lease>& held) noexcept;
    void end(std::size_t member, std::int64_t ask) noexcept;
    void look_again(std::size_t member) noexcept;

    const std::shared_ptr<quorum_parts> parts_;
    const lock_name name_;
    const std::string note_;
    mutable std::mutex mutex_;
    std::condition_variable_any changed_;
    protocol::quorum_ballot ballot_;
    std::vector<slot> slots_;
    int releasing_ = 0;  ///< at members that answer
    /// Asks that were ended before their calls returned, at members that answer: release() waits
    /// for these as well. The next acquire of this client must not queue behind what they leave.
    std::vector<std::int64_t> ending_;
    std::deque<protocol::quorum_action> todo_;  ///< could not be posted yet
    std::atomic<std::int64_t> token_{0};
    std::atomic<nanoseconds> alarm_{base::alarm::never};
    std::stop_source lost_;
};

}  // namespace rowlock::detail
