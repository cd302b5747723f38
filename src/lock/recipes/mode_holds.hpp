#pragma once

#include "base/fork_guard.hpp"
#include <rowlock/client.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// What the threads of a client hold of one shared_mutex. Readers may use one grant together. The
/// guard is never held over a round trip: a thread works with its own entry, which no other thread
/// touches, and with a lease that no other thread changes while it has several users.
class mode_holds {
public:
    using steady = std::chrono::steady_clock;

    /// A grant, and how many threads use it.
    struct used_lease {
        mode_lease lease;
        std::string label;  ///< if threads may share it: see party_labels.hpp
        int users = 1;
    };
    struct hold {
        std::shared_ptr<used_lease> used;
        bool locked;  ///< by lock() or lock_upgrade()
        int shared;   ///< how many times besides, or alone, by lock_shared()
    };

    mode_holds(client& locks_, lock_name name_, mode_options options_)
        : locks{locks_}, name{std::move(name_)}, options{std::move(options_)} {}

    client& locks;
    const lock_name name;
    const mode_options options;

    /// As the last shared_mutex of its name goes. In a forked child it stays: a reader of the
    /// parent that waited here never ends, and its wait is waited for.
    static void let_go(std::shared_ptr<mode_holds> last) noexcept;

    /// The calling thread's, or null, as in a forked child; valid until this thread unlocks it.
    [[nodiscard]] hold* mine() const;
    /// @throws error errc::not_owner; errc::wrong_process in a forked child
    [[nodiscard]] hold& require_mine() const;

    /// Acquires a grant with this label, or with that of the thread if it is empty.
    using acquire_call = std::function<std::optional<mode_lease>(const std::string& label)>;
    /// Calls `acquire`, and enters its grant for the calling thread. Returns false if there is
    /// none.
    bool lock(lock_mode mode, const acquire_call& acquire);
    /// The same for a reader, which joins the grant of others if that is young, and waits for one
    /// that another thread of this client is about to get.
    bool lock_shared(steady::time_point until, const std::stop_token& stop,
                     const acquire_call& acquire);
    /// Keeps other threads from joining the calling thread's grant. Returns false if some use it.
    [[nodiscard]] bool is_alone(const hold& mine);
    /// Gives up one hold in this mode: the last one releases the lock, or leaves it shared.
    /// @throws error errc::not_owner, and those of release() and downgrade()
    void unlock(lock_mode mode);

private:
    [[nodiscard]] bool may_join() const;
    bool join();

    const base::fork_guard fork_{};  ///< in a child another thread's lock of the guard never ends
    mutable std::mutex guard_;
    mutable std::unordered_map<std::thread::id, hold> of_threads_{};
    std::weak_ptr<used_lease> young_{};  ///< the grant that readers may join
    steady::time_point young_until_{};
    bool asking_ = false;              ///< a reader is about to get a grant that others may join
    steady::time_point asks_until_{};  ///< it gives up no sooner
    std::condition_variable_any answered_{};
};

}  // namespace rowlock::detail
