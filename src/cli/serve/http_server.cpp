#include "cli/serve/http_server.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// For a whole request, from its connection on.
constexpr auto request_time = 10s;
/// For the next bytes of an answer to be taken.
constexpr auto progress_time = 5s;
/// Of a whole request. Those of the page have about a thousand.
constexpr std::size_t longest_request = 32UL * 1024;

thread_local int served_by_this_thread = -1;

/// A connection that has sent too much, or took too long, reads as ended.
class connection final : public httplib::Stream {
public:
    connection(connections& among, const connections::pointer& one)
        : among_{among}, one_{one}, socket_{one->socket} {}

    [[nodiscard]] bool is_readable() const override {
        return begin_ < end_ || wait_for(POLLIN, request_end_);
    }
    [[nodiscard]] bool is_writable() const override {
        return wait_for(POLLOUT, steady_clock::now() + progress_time);
    }

    ssize_t read(char* to, std::size_t size) override {
        if (begin_ == end_ && !fill()) return -1;
        const auto count = std::min(size, end_ - begin_);
        std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), count, to);
        begin_ += count;
        return static_cast<ssize_t>(count);
    }

    ssize_t write(const char* from, std::size_t size) override {
        if (!is_writable()) return -1;
        return ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    void get_remote_ip_and_port(std::string& ip, int& port) const override {
        name(::getpeername, ip, port);
    }
    void get_local_ip_and_port(std::string& ip, int& port) const override {
        name(::getsockname, ip, port);
    }
    [[nodiscard]] socket_t socket() const override { return socket_; }

private:
    /// One that is ready need not be reported: until its first byte it counts as silent.
    [[nodiscard]] bool wait_for(short what, steady_clock::time_point until) const {
        bool ready = is_ready(what, steady_clock::now());
        if (!ready) {
            among_.begin_wait(one_, what);
            silent_ = true;
            ready = is_ready(what, until);
        }
        if (std::exchange(silent_, false)) among_.end_wait(one_);
        return ready;
    }

    [[nodiscard]] bool is_ready(short what, steady_clock::time_point until) const {
        for (;;) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
            pollfd watched{socket_, what, 0};
            const int found =
                ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
            if (found >= 0 || errno != EINTR) return found > 0;
        }
    }

    bool fill() {
        if (received_ >= longest_request || !wait_for(POLLIN, request_end_)) return false;
        const auto count = ::recv(socket_, buffer_.data(),
                                  std::min(buffer_.size(), longest_request - received_), 0);
        if (count <= 0) return false;
        begin_ = 0;
        end_ = static_cast<std::size_t>(count);
        received_ += end_;
        return true;
    }

    template <typename Ask>
    void name(Ask ask, std::string& ip, int& port) const {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        // The functions of the system take any address by this type.
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        std::array<char, NI_MAXHOST> host{};
        std::array<char, NI_MAXSERV> service{};
        if (ask(socket_, generic, &size) != 0 ||
            ::getnameinfo(generic, size, host.data(), host.size(), service.data(), service.size(),
                          NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
            return;
        }
        ip = host.data();
        port = std::atoi(service.data());
    }

    connections& among_;
    const connections::pointer& one_;
    const socket_t socket_;
    const steady_clock::time_point request_end_ = one_->accepted + request_time;
    mutable bool silent_ = true;
    std::array<char, 4096> buffer_{};
    std::size_t begin_ = 0, end_ = 0, received_ = 0;
};

}  // namespace

/// The library hands over work that is to be done for a connection on one of the threads. It is
/// done where it comes instead, and queues the connection.
class http_server::threads final : public httplib::ThreadPool {
public:
    using httplib::ThreadPool::ThreadPool;
    void enqueue(std::function<void()> work) override { work(); }
    void add(std::function<void()> work) { ThreadPool::enqueue(std::move(work)); }
};

http_server::http_server(std::size_t count) : connections_{count} {
    new_task_queue = [this, count] { return threads_ = new threads{count}; };
}

void http_server::listen_for_many() const {
    constexpr int backlog = 512;
    ::listen(svr_sock_, backlog);
}

bool http_server::client_has_left() noexcept {
    pollfd watched{served_by_this_thread, POLLRDHUP, 0};
    return ::poll(&watched, 1, 0) > 0;
}

/// On the thread that accepts.
bool http_server::process_and_close_socket(socket_t socket) {
    if (const auto one = connections_.admit(socket)) {
        threads_->add([this, one] { serve(one); });
    }
    return true;
}

void http_server::serve(const connections::pointer& one) {
    if (!connections_.take(one)) return;
    served_by_this_thread = one->socket;
    connection with{connections_, one};
    bool closed = false;
    process_request(with, true, closed, nullptr);
    connections_.close(one);
}

}  // namespace rowlock::cli::serving
