#include "driver/own_socket.hpp"

#include "base/signal_blocked_thread.hpp"
#include <rowlock/error.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace rowlock::driver {
namespace {

/// Scanning more descriptors takes longer than doing without.
constexpr std::size_t most_descriptors = 4096;

struct close_folder {
    void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

/// Whether it is a stream socket, which never changes.
bool is_stream(int number) {
    int type = 0;
    socklen_t size = sizeof type;
    return ::getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/// The socket's inode, which no other open socket has; 0 if it is not a socket. Read from /proc and
/// not from the descriptor, which may be another thread's that is just closing it.
unsigned long socket_inode(int number) {
    constexpr std::string_view prefix = "socket:[";
    std::array<char, 64> text{};
    const std::string path = "/proc/self/fd/" + std::to_string(number);
    const auto size = ::readlink(path.c_str(), text.data(), text.size());
    const std::string_view target{text.data(),
                                  static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
    if (!target.starts_with(prefix)) return 0;
    unsigned long inode = 0;
    std::from_chars(target.data() + prefix.size(), target.data() + target.size(), inode);
    return inode;
}

}  // namespace

descriptor::~descriptor() {
    if (number_ >= 0) ::close(number_);
}

// --- finding -------------------------------------------------------------------------------------

open_sockets::open_sockets() : before_{look()} {
    if (!before_) counted_ = look_at_each();
}

// Without /proc, and with very many descriptors: slow, but once per connection.
std::set<open_sockets::entry> open_sockets::look_at_each() {
    constexpr rlim_t most_looked_at = 65536;
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    const auto end = static_cast<int>(std::min(most.rlim_cur, most_looked_at));
    std::set<entry> found;
    for (int number = 0; number < end; ++number) {
        struct stat what {};
        if (is_stream(number) && ::fstat(number, &what) == 0) found.insert({what.st_ino, number});
    }
    return found;
}

void open_sockets::close_on_exec() const noexcept {
    try {
        const auto& known = before_ ? *before_ : counted_;
        auto now = before_ ? look() : std::nullopt;
        if (!now) now = look_at_each();
        for (const entry& each : *now) {
            const auto same = known.lower_bound({each.inode, 0});
            if (same != known.end() && same->inode == each.inode) continue;
            sockaddr_storage peer{};
            socklen_t size = sizeof peer;
            const bool connected =
                ::getpeername(each.number, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
            const int flags = connected ? ::fcntl(each.number, F_GETFD) : -1;
            if (flags >= 0) ::fcntl(each.number, F_SETFD, flags | FD_CLOEXEC);
        }
    } catch (const std::bad_alloc&) {
        // Nothing changes: a program that is started inherits the connection.
    }
}

std::optional<std::set<open_sockets::entry>> open_sockets::look() {
    const std::unique_ptr<DIR, close_folder> folder{::opendir("/proc/self/fd")};
    if (!folder) return std::nullopt;
    std::set<entry> found;
    std::size_t seen = 0;
    while (const dirent* const each = ::readdir(folder.get())) {
        const std::string_view name{each->d_name};
        int number = -1;
        if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc{}) {
            continue;
        }
        if (++seen > most_descriptors) return std::nullopt;
        const unsigned long inode = socket_inode(number);
        if (inode != 0 && is_stream(number)) found.insert({inode, number});
    }
    return found;
}

std::optional<descriptor> open_sockets::only_new_one() const {
    const auto now = look();
    if (!before_ || !now) return std::nullopt;
    std::optional<entry> only;
    for (const entry& each : *now) {
        const auto known = before_->lower_bound({each.inode, 0});
        if (known != before_->end() && known->inode == each.inode) continue;
        if (only && only->inode != each.inode) return std::nullopt;
        only = each;
    }
    if (!only) return std::nullopt;
    descriptor ours{::fcntl(only->number, F_DUPFD_CLOEXEC, 3)};
    // Another thread may just have closed that descriptor; ours stays open, so check what it is.
    if (ours.number() < 0 || socket_inode(ours.number()) != only->inode) return std::nullopt;
    return ours;
}

// --- shutting down -------------------------------------------------------------------------------

namespace {

class watching_thread final : public deadlines {
public:
    watching_thread() : thread_{base::signal_blocked_thread([this] { run(); })} {}
    watching_thread(const watching_thread&) = delete;
    watching_thread& operator=(const watching_thread&) = delete;
    ~watching_thread() override {
        {
            const std::lock_guard lock{mutex_};
            stopping_ = true;
        }
        earlier_.notify_one();
        thread_.join();
    }

private:
    void begin(entry& one) override {
        bool sooner = false;
        {
            const std::lock_guard lock{mutex_};
            running_.push_back(&one);
            // Most calls end long before; the thread wakes when the first could be late.
            sooner = one.until < wakes_at_;
            if (sooner) wakes_at_ = one.until;
        }
        if (sooner) earlier_.notify_one();
    }

    void end(entry& one) noexcept override {
        const std::lock_guard lock{mutex_};
        std::erase(running_, &one);
    }

    void run() {
        std::unique_lock lock{mutex_};
        while (!stopping_) {
            const auto now = std::chrono::steady_clock::now();
            wakes_at_ = sql::deadline::max();
            for (entry* const each : running_) {
                if (each->passed) continue;
                if (each->until > now) {
                    wakes_at_ = std::min(wakes_at_, each->until);
                    continue;
                }
                each->passed = true;
                ::shutdown(each->socket, SHUT_RDWR);
            }
            if (wakes_at_ == sql::deadline::max()) {
                earlier_.wait(lock);
            } else {
                earlier_.wait_until(lock, sql::deadline{wakes_at_});
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable earlier_;
    std::vector<entry*> running_;  // one per concurrent call: few
    sql::deadline wakes_at_ = sql::deadline::max();
    bool stopping_ = false;
    std::thread thread_;
};

/// The watch of this process. A forked child, which has no such thread, forgets its parent's.
struct shared_watch {
    static shared_watch& instance() {
        static auto* const only = new shared_watch;  // outlives every connection
        return *only;
    }

    std::mutex mutex;
    std::weak_ptr<deadlines> current;

private:
    // No fork happens while another thread holds the mutex, or the child could never lock it.
    shared_watch() {
        ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                         [] {
                             instance().current.reset();
                             instance().mutex.unlock();
                         });
    }
};

}  // namespace

std::shared_ptr<deadlines> deadlines::of_this_process() {
    auto& shared = shared_watch::instance();
    const std::lock_guard lock{shared.mutex};
    if (auto there = shared.current.lock()) return there;
    try {
        auto made = std::make_shared<watching_thread>();
        shared.current = made;
        return made;
    } catch (const std::system_error&) {
        throw error{errc::out_of_resources, "no thread for deadlines could be started"};
    }
}

// --- signals -------------------------------------------------------------------------------------

no_pipe_signal::no_pipe_signal() noexcept {
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (::pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0) return;
    was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

no_pipe_signal::~no_pipe_signal() {
    if (was_blocked_) return;
    sigset_t pipe, raised;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    // SIGPIPE is raised in the thread that writes, so a pending one is ours.
    if (::sigpending(&raised) == 0 && sigismember(&raised, SIGPIPE) == 1) {
        const timespec at_once{0, 0};
        ::sigtimedwait(&pipe, nullptr, &at_once);
    }
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace rowlock::driver
