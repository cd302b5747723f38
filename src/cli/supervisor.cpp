#include "cli/supervisor.hpp"

#include "cli/exit_code.hpp"
#include "cli/last_resort.hpp"
#include "cli/nesting.hpp"
#include "cli/process_group.hpp"
#include "cli/signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr nanoseconds never = nanoseconds::max();
// Members that are not our children end without a signal to us, so they are polled.
constexpr nanoseconds look_again = 10ms;
// A main that waits through many outages opens many sessions; the last ones may still live.
constexpr std::size_t most_sessions = 16;

/// Reports errno.
[[noreturn]] void give_up(int report) noexcept {
    const std::int32_t reason = errno;
    static_cast<void>(!write(report, &reason, sizeof reason));
    _exit(not_found);
}

/// Async-signal-safe except for the environment; the supervisor has one thread.
[[noreturn]] void become(const supervised_command& command, const std::vector<std::int64_t>& tokens,
                         int terminal, pid_t main_group, pid_t parent, int report,
                         const last_resort& kernel) noexcept {
    setpgid(0, 0);
    // SIGTTOU is blocked here.
    if (terminal >= 0 && isatty(STDIN_FILENO) != 0 && tcgetpgrp(terminal) == main_group) {
        tcsetpgrp(terminal, getpid());
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(signal_base + SIGKILL);
    if (!kernel.bind_group_of_this_process()) give_up(report);
    prctl(PR_SET_NAME, "rowlock-command");
    std::vector<char*> arguments;
    for (const auto& each : command.arguments) arguments.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    unsetenv("ROWLOCK_URL");
    unsetenv("ROWLOCK_URL_FILE");
    if (command.url) setenv("ROWLOCK_URL", command.url->c_str(), 1);
    setenv("ROWLOCK_NAME", command.name.c_str(), 1);
    std::string lines;
    for (const auto each : tokens) {
        if (!lines.empty()) lines += '\n';
        lines += std::to_string(each);
        setenv("ROWLOCK_HOLDS", holds_of_a_command(command.holder, each).c_str(), 1);
    }
    setenv("ROWLOCK_TOKEN", lines.c_str(), 1);
    sigprocmask(SIG_SETMASK, &command.signal_mask, nullptr);
    execvp(arguments.front(), arguments.data());
    give_up(report);
}

/// The supervisor process.
class supervision {
public:
    supervision(int socket, int terminal, const supervised_command& command, pid_t main_group)
        : socket_{socket},
          terminal_{terminal},
          command_{command},
          main_group_{main_group},
          children_{{SIGCHLD},
                    {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN,
                     SIGTTOU, SIGPIPE}},
          timer_{timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)} {
        if (!timer_) throw system_call_failed("timerfd", errno);
    }

    void run() {
        while (!done_) {
            set_timer();
            pollfd watched[] = {{main_gone_ ? -1 : socket_, POLLIN, 0},
                                {children_.descriptor(), POLLIN, 0},
                                {timer_.get(), POLLIN, 0}};
            poll(watched, 3, -1);
            std::uint64_t count = 0;
            static_cast<void>(!read(timer_.get(), &count, sizeof count));
            while (children_.next() != 0) {
            }
            if (watched[0].revents != 0) hear_main();
            if (leader_ != 0 && phase_ != phase::over) look_after();
        }
        arm_kernel();
    }

    /// Whether no other process is left to report that the group is dead.
    [[nodiscard]] bool orphaned() const noexcept { return main_gone_ && !sessions_.empty(); }
    [[nodiscard]] const std::vector<session_id>& sessions() const noexcept { return sessions_; }

private:
    enum class phase { idle, running, terminating, killed, over };

    void tell_main(const notice& what) const noexcept {
        if (!main_gone_) send(socket_, &what, sizeof what, MSG_NOSIGNAL);
    }

    void hear_main() {
        notice what{};
        const ssize_t got = recv(socket_, &what, sizeof what, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got != sizeof what) {
            main_gone_ = true;
            if (leader_ == 0 || phase_ == phase::over) done_ = true;
            stop();
            return;
        }
        switch (what.what) {
            case notice::kind::token:
                tokens_.push_back(what.value);
                break;
            case notice::kind::start:
                start();
                break;
            case notice::kind::trust:
                trusted_until_ = std::max(trusted_until_, nanoseconds{what.value});
                break;
            case notice::kind::forward:
                forward(what.number);
                break;
            case notice::kind::stop:
                stop();
                break;
            case notice::kind::session:
                note_session(what.session());
                break;
            case notice::kind::leave:
                sessions_.clear();
                break;
            default:
                break;
        }
    }

    /// The latest first.
    void note_session(session_id id) {
        if (std::ranges::find(sessions_, id) != sessions_.end()) return;
        sessions_.insert(sessions_.begin(), id);
        if (sessions_.size() > most_sessions) sessions_.pop_back();
    }

    void start() {
        if (boot_time() >= trusted_until_) {
            tell_main({notice::kind::ended, 0, 1});
            phase_ = phase::over;
            return;
        }
        int report[2];
        if (pipe2(report, O_CLOEXEC) != 0) return refuse_start(errno, true);
        const descriptor reading{report[0]};
        descriptor writing{report[1]};
        const pid_t self = getpid();
        phase_ = phase::running;
        arm_kernel();
        const pid_t child = fork();
        if (child == 0) {
            become(command_, tokens_, terminal_, main_group_, self, writing.get(), kernel_);
        }
        if (child < 0) return refuse_start(errno, true);
        setpgid(child, child);
        // Before the wait for exec: should we be stopped here, main can stop the group.
        tell_main({notice::kind::started, child});
        writing.reset();
        leader_ = child;
        await_exec(reading.get());
        std::int32_t reason = 0;
        ssize_t got = 0;
        while ((got = read(reading.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
        }
        if (got == sizeof reason) {
            waitpid(child, nullptr, 0);
            leader_ = 0;
            return refuse_start(reason, false);
        }
    }

    /// Hears main until the command's process reports: to open its file, on a slow file system, may
    /// take longer than the trust that we know of, and the kernel would kill us at its end.
    void await_exec(int report) {
        for (;;) {
            pollfd watched[] = {{report, POLLIN, 0}, {main_gone_ ? -1 : socket_, POLLIN, 0}};
            poll(watched, 2, -1);
            if (watched[0].revents != 0) return;
            if (watched[1].revents == 0) continue;
            hear_main();
            arm_kernel();
        }
    }

    void refuse_start(int reason, bool fork_failed) {
        tell_main({notice::kind::not_started, reason, fork_failed ? 1 : 0});
        phase_ = phase::over;
    }

    void forward(int number) noexcept {
        if (leader_ == 0 || phase_ == phase::over) return;
        // The shell continues us by `fg`: now the command may have the terminal.
        if (number == SIGCONT) hand_terminal_over();
        signal_group(number);
    }

    void hand_terminal_over() const noexcept {
        if (terminal_ >= 0 && tcgetpgrp(terminal_) == main_group_) tcsetpgrp(terminal_, leader_);
    }

    /// Until the leader is collected its number is the group's; afterwards living members keep it,
    /// and has_living_members has just found some.
    void signal_group(int number) const noexcept {
        if (!leader_collected_ || has_living_members(leader_)) kill(-leader_, number);
    }

    void stop() noexcept {
        if (phase_ != phase::running) return;
        phase_ = phase::terminating;
        const nanoseconds now = boot_time();
        kill_at_ = now + command_.grace;
        if (trusted_until_ != never) {
            kill_at_ = std::min(kill_at_, trusted_until_ + nanoseconds{command_.allowance});
        }
        if (now < kill_at_) {
            signal_group(SIGTERM);
            signal_group(SIGCONT);
        }
    }

    void look_after() noexcept {
        collect();
        const nanoseconds now = boot_time();
        if (phase_ == phase::running && !leader_collected_ && now >= trusted_until_) {
            lapsed_ = true;
            stop();
        }
        if (phase_ == phase::terminating && now >= kill_at_) {
            phase_ = phase::killed;
            signal_group(SIGKILL);
        }
        if (!leader_collected_) return;
        if (no_children_ || !has_living_members(leader_)) {
            tell_main({notice::kind::ended, status_, lapsed_ ? 1 : 0});
            phase_ = phase::over;
            done_ = main_gone_;
            return;
        }
        // The command has ended but left processes in its group, which would go on without the
        // lock.
        if (phase_ == phase::running) stop();
        if (phase_ == phase::killed) signal_group(SIGKILL);
    }

    void collect() noexcept {
        for (;;) {
            int status = 0;
            const pid_t changed = waitpid(-1, &status, WNOHANG | WUNTRACED);
            if (changed < 0 && errno == EINTR) continue;
            no_children_ = changed < 0;
            if (changed <= 0) return;
            if (changed != leader_) continue;
            if (WIFSTOPPED(status)) {
                leader_stopped(WSTOPSIG(status));
            } else {
                leader_collected_ = true;
                status_ = status;
            }
        }
    }

    void leader_stopped(int number) noexcept {
        if (number == SIGTSTP) {
            // Ctrl-Z. A sleeping holder would keep all waiters waiting.
            signal_group(SIGCONT);
        } else if (number == SIGTTIN || number == SIGTTOU) {
            if (terminal_ < 0 || tcgetpgrp(terminal_) != main_group_) return;
            hand_terminal_over();
            signal_group(SIGCONT);
        }
    }

    /// From the command's start until its group is dead.
    void arm_kernel() const noexcept {
        if (phase_ == phase::idle || phase_ == phase::over || trusted_until_ == never) {
            kernel_.live_on();
        } else {
            kernel_.die_at(trusted_until_ + nanoseconds{command_.last_allowance});
        }
    }

    void set_timer() noexcept {
        arm_kernel();
        nanoseconds next = never;
        if (phase_ == phase::running) next = trusted_until_;
        if (phase_ == phase::terminating) next = kill_at_;
        if (phase_ != phase::over && leader_ != 0 &&
            (leader_collected_ || phase_ == phase::killed)) {
            next = std::min(next, boot_time() + look_again);
        }
        itimerspec due{};
        if (next != never) {
            next = std::max(next, nanoseconds{1});
            const auto seconds = std::chrono::floor<std::chrono::seconds>(next);
            due.it_value.tv_sec = seconds.count();
            due.it_value.tv_nsec = (next - seconds).count();
        }
        timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &due, nullptr);
    }

    const int socket_;
    const int terminal_;
    const supervised_command& command_;
    const pid_t main_group_;
    blocked_signals children_;
    descriptor timer_;
    const last_resort kernel_;

    phase phase_ = phase::idle;
    pid_t leader_ = 0;
    bool leader_collected_ = false;
    bool no_children_ = false;
    bool main_gone_ = false;
    bool lapsed_ = false;
    bool done_ = false;
    int status_ = 0;
    std::vector<session_id> sessions_;  ///< main's
    std::vector<std::int64_t> tokens_;
    nanoseconds trusted_until_ = nanoseconds::min();
    nanoseconds kill_at_ = never;
};

/// A reader of the command's output waits until every process has closed it.
void let_go_of_files() noexcept {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (nothing < 0 || dup2(nothing, each) < 0) close(each);
    }
}

[[noreturn]] void supervise(int socket, int terminal, const supervised_command& command,
                            pid_t main_group) noexcept {
    // Leaves main's group, out of reach of signals sent to it by a terminal or by kill -9.
    setpgid(0, 0);
    prctl(PR_SET_NAME, "rowlock-guard");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    try {
        supervision watch{socket, terminal, command, main_group};
        watch.run();
        if (watch.orphaned()) {
            let_go_of_files();
            command.end_sessions(watch.sessions());
        }
    } catch (...) {
        _exit(system_failure);
    }
    _exit(success);
}

}  // namespace

supervisor::supervisor(const supervised_command& command) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        throw system_call_failed("no socket for the supervisor", errno);
    }
    socket_ = descriptor{ends[0]};
    descriptor theirs{ends[1]};
    terminal_ = descriptor{open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)};
    std::signal(SIGCHLD, SIG_DFL);  // if ignored, children would vanish unseen
    const pid_t main_group = getpgrp();
    process_ = fork();
    if (process_ < 0) throw system_call_failed("the supervisor could not be started", errno);
    if (process_ == 0) {
        socket_.reset();
        supervise(theirs.get(), terminal_.get(), command, main_group);
    }
    // If the supervisor is killed its orphans become our children.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void supervisor::tell(const notice& what) noexcept {
    // A full buffer means that the supervisor is stopped; main must not block.
    send(socket_.get(), &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<notice> supervisor::read() noexcept {
    notice what{};
    ssize_t got = 0;
    // A supervisor that ends with an unread notice of ours resets the connection, once; its earlier
    // notices are still to be read.
    while ((got = recv(socket_.get(), &what, sizeof what, 0)) < 0 &&
           (errno == EINTR || errno == ECONNRESET)) {
    }
    if (got != sizeof what) return std::nullopt;
    return what;
}

void supervisor::take_terminal_back(pid_t group) const noexcept {
    if (terminal_ && tcgetpgrp(terminal_.get()) == group) tcsetpgrp(terminal_.get(), getpgrp());
}

}  // namespace rowlock::cli
