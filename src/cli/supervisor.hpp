#pragma once

#include "cli/descriptor.hpp"
#include <rowlock/ids.hpp>

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Ensures that a command does not outlive its lease.
///
///     rowlock (main)            heartbeats, reports how long the lease can be trusted, forwards
///     signals
///       └ supervisor            a process of one thread, without a connection while main lives
///           └ command           leader of a process group of its own
///
/// The supervisor stops the whole group when main says so, when main is gone (end of file on their
/// socket, also after kill -9), or when main has not confirmed the lease in time (main is stopped).
/// If the supervisor is killed the kernel kills the command and main kills the rest of the group.
/// The supervisor is forked before main makes its first thread.
///
/// If main is gone without having said that it leaves, no other process knows that the group is
/// dead: the supervisor then ends main's sessions, so that the lock need not wait for their ttl. It
/// has all that this requires from the fork, including the database's URL; only the ids of the
/// sessions cross the socket, which the command does not inherit.
namespace rowlock::cli {

/// A message between main and the supervisor.
struct notice {
    enum class kind : std::int32_t {
        // to the supervisor
        token,  ///< value: a fencing token; one for each lock, before the start
        start,
        trust,    ///< value: the boot time until which the lease is trusted, in nanoseconds
        forward,  ///< number: a signal for the group
        stop,     ///< the lease is lost
        session,  ///< value: the id of a session of main's
        leave,    ///< main has ended its sessions, or tried to
        // to main
        started,      ///< number: process id, which is the group's id too
        not_started,  ///< number: errno of exec; value: 1 if fork itself failed
        ended,        ///< number: wait status of the command; value: 1 if trust had run out. The
                      ///< group is gone.
    };
    kind what;
    std::int32_t number = 0;
    std::int64_t value = 0;

    [[nodiscard]] static notice about(session_id id) {
        return {kind::session, 0, static_cast<std::int64_t>(id)};
    }
    [[nodiscard]] session_id session() const { return session_id{value}; }
};

struct supervised_command {
    std::vector<std::string> arguments;
    std::string name;                 ///< of the lock; of several: one a line
    pid_t holder;                     ///< our process: the holder that the lock's row names
    std::optional<std::string> url;   ///< for the command's environment
    std::chrono::milliseconds grace;  ///< between SIGTERM and SIGKILL
    /// How long after the end of trust the group may at most live; less than the client's margin.
    std::chrono::milliseconds allowance;
    /// As long after it the kernel kills the supervisor, if that was stopped, and the group.
    /// Between the former and the margin.
    std::chrono::milliseconds last_allowance;
    sigset_t signal_mask;  ///< the command's
    /// Frees what main's sessions held; runs in the supervisor once main and the group are dead.
    /// May take a while and throw.
    std::function<void(const std::vector<session_id>& sessions)> end_sessions;
};

class supervisor {
public:
    /// Forks. To be called while the process has one thread.
    /// @throws failure
    explicit supervisor(const supervised_command& command);
    supervisor(const supervisor&) = delete;
    supervisor& operator=(const supervisor&) = delete;
    /// Tells the supervisor that main leaves: its sessions are over by then.
    ~supervisor() { tell({notice::kind::leave}); }

    /// May be called by any thread.
    void tell(const notice& what) noexcept;
    /// Returns nullopt if the supervisor is dead.
    [[nodiscard]] std::optional<notice> read() noexcept;
    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] pid_t process() const noexcept { return process_; }
    /// Makes our process group the terminal's foreground again, if the command's `group` is.
    void take_terminal_back(pid_t group) const noexcept;

private:
    descriptor socket_;
    descriptor terminal_;
    pid_t process_ = -1;
};

}  // namespace rowlock::cli
