#pragma once

#include "lock/queue/contended_names.hpp"
#include "lock/queue/waiting_threads.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// Where the parts of a client turn with what concerns waiters: it makes the waiting_threads, whose
/// loop costs a client nothing before its first wait or release. Thread-safe.
class client_waiters final : public waiters {
public:
    client_waiters(client_context& context, session_registry& sessions,
                   client_connections& connections, grant_lifecycle& grants, session_keeper& keeper)
        : parts_{context, sessions, connections, grants, keeper, contended_, *this} {}

    /// The waiting threads, made with the first call.
    /// @throws error errc::out_of_resources; errc::lock_lost after begin_close()
    [[nodiscard]] std::shared_ptr<waiting_threads> threads();
    /// The waiting threads, or null.
    [[nodiscard]] std::shared_ptr<waiting_threads> made() const noexcept;

    void session_lost(session_id session, loss_reason why) noexcept override;
    void session_ended(session_id session) noexcept override;
    void freed(const std::string& name) noexcept override;
    void perhaps_freed(const std::string& name) noexcept override;
    void after_release(sql::connection& db, const std::string& name,
                       const protocol::release_outcome& done,
                       sql::deadline until) noexcept override;
    void serve(sql::connection& db, const std::string& name, protocol::queue_head expected,
               sql::deadline until) override;
    std::vector<taken_back> take_back(sql::connection& db, std::span<const std::string> names,
                                      sql::deadline until) override;
    void fail(const error& why, std::string_view name) override;
    void poll_soon() noexcept override;
    bool listen_again() noexcept override;
    [[nodiscard]] bool is_running() const noexcept override { return made() != nullptr; }
    void while_unchanged(const std::function<void(bool)>& use) override;

    /// A release that has looked for waiters itself, where that finds most of them, freed a lock.
    void freed_unwaited(const std::string& name) noexcept;
    /// A transaction that is still open will free the lock soon.
    void freed_soon(const std::string& name) noexcept;
    [[nodiscard]] contended_names& contended() noexcept { return contended_; }

    /// No loop is started any more, and a running one begins no further step.
    void begin_close() noexcept;
    /// Ends the loop, fails the threads that still wait, and returns the work that is left.
    waiting_threads::leftovers finish_close() const noexcept;
    /// The last act of a client: serves the queues of what it held, and deletes the entries of its
    /// ended sessions. Two or more round trips if there is anything to do.
    void hand_over_last(sql::connection& db, const waiting_threads::leftovers& rest,
                        sql::deadline until);

private:
    template <typename Tell>
    void tell(Tell what) noexcept;
    const std::shared_ptr<waiting_threads>& make_locked();
    taken_back take_back(sql::connection& db, const std::string& name,
                         std::vector<session_id>& ended, sql::deadline until);

    contended_names contended_;
    const waiting_threads::surroundings parts_;
    mutable std::mutex mutex_;
    bool closed_ = false;
    std::shared_ptr<waiting_threads> threads_;
};

}  // namespace rowlock::detail
