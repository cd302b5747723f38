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
#include <string>

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

/// A connection that has sent too much, or took too long, reads as ended.
class connection final : public httplib::Stream {
public:
    explicit connection(socket_t socket) : socket_{socket} {}

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
    [[nodiscard]] bool wait_for(short what, steady_clock::time_point until) const {
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

    const socket_t socket_;
    const steady_clock::time_point request_end_ = steady_clock::now() + request_time;
    std::array<char, 4096> buffer_{};
    std::size_t begin_ = 0, end_ = 0, received_ = 0;
};

}  // namespace

void http_server::end_connections() {
    const std::lock_guard lock{mutex_};
    ending_ = true;
    for (const auto each : open_) ::shutdown(each, SHUT_RDWR);
}

bool http_server::process_and_close_socket(socket_t socket) {
    {
        const std::lock_guard lock{mutex_};
        if (!ending_) open_.insert(socket);
        if (ending_) ::shutdown(socket, SHUT_RDWR);
    }
    connection with{socket};
    bool closed = false;
    const bool done = process_request(with, true, closed, nullptr);
    {
        const std::lock_guard lock{mutex_};
        open_.erase(socket);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return done;
}

}  // namespace rowlock::cli::serving
