#include "support/tcp_listener.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace support {
namespace {

[[noreturn]] void fail(const char* what) {
    throw std::system_error{errno, std::generic_category(), what};
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int bound_socket() {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) fail("socket");
    const sockaddr_in address = loopback(0);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        fail("bind");
    return made;
}

int listening_socket() {
    const int made = bound_socket();
    if (::listen(made, 64) != 0) fail("listen");
    return made;
}

std::uint16_t port_of(int socket) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        fail("getsockname");
    }
    return ntohs(address.sin_port);
}

}  // namespace

silent_listener::silent_listener() : socket_{listening_socket()}, port_{port_of(socket_)} {}
silent_listener::~silent_listener() {
    ::close(socket_);
}

closed_port::closed_port() : socket_{bound_socket()}, port_{port_of(socket_)} {}
closed_port::~closed_port() {
    ::close(socket_);
}

class tcp_relay::state {
public:
    explicit state(std::uint16_t target)
        : target_{target}, listener_{listening_socket()}, port_{port_of(listener_)} {
        if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) fail("pipe2");
        thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        thread_.request_stop();
        wake();
        thread_.join();
        for (const pair& each : pairs_) close_pair(each);
        ::close(listener_);
        ::close(wake_[0]);
        ::close(wake_[1]);
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }

    // Answers only when the relaying thread has seen the change.
    void set(bool requests, bool answers) {
        {
            const std::lock_guard guard{mutex_};
            requests_ = requests;
            answers_ = answers;
        }
        wake();
    }

    void cut() {
        const std::lock_guard guard{mutex_};
        for (const pair& each : pairs_) {
            ::shutdown(each.client, SHUT_RDWR);
            ::shutdown(each.server, SHUT_RDWR);
        }
    }

private:
    struct pair {
        int client;
        int server;
    };

    void wake() const { [[maybe_unused]] const auto written = ::write(wake_[1], "x", 1); }

    static void close_pair(const pair& each) {
        ::close(each.client);
        ::close(each.server);
    }

    void run(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            std::vector<pollfd> wanted{{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
            std::vector<std::list<pair>::iterator> order;
            {
                const std::lock_guard guard{mutex_};
                for (auto each = pairs_.begin(); each != pairs_.end(); ++each) {
                    order.push_back(each);
                    wanted.push_back({requests_ ? each->client : -1, POLLIN, 0});
                    wanted.push_back({answers_ ? each->server : -1, POLLIN, 0});
                }
            }
            if (::poll(wanted.data(), wanted.size(), -1) < 0 && errno != EINTR) return;
            char drained[64];
            while (::read(wake_[0], drained, sizeof drained) > 0) {
            }
            const std::lock_guard guard{mutex_};
            if (wanted[1].revents != 0) accept_one();
            for (std::size_t i = 0; i < order.size(); ++i) {
                const pair each = *order[i];
                const bool broken =
                    (requests_ && wanted[2 + 2 * i].revents != 0 &&
                     !pass(each.client, each.server)) ||
                    (answers_ && wanted[3 + 2 * i].revents != 0 && !pass(each.server, each.client));
                if (!broken) continue;
                close_pair(each);
                pairs_.erase(order[i]);
            }
        }
    }

    void accept_one() {
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) return;
        const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(target_);
        if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            close_pair({client, server});
            return;
        }
        pairs_.push_back({client, server});
    }

    static bool pass(int from, int to) {
        char bytes[16384];
        const ssize_t got = ::read(from, bytes, sizeof bytes);
        if (got <= 0) return false;
        for (ssize_t sent = 0; sent < got;) {
            const ssize_t more =
                ::send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
            if (more <= 0) return false;
            sent += more;
        }
        return true;
    }

    std::uint16_t target_;
    int listener_;
    std::uint16_t port_;
    int wake_[2]{};
    std::mutex mutex_;
    std::list<pair> pairs_;
    bool requests_ = true;
    bool answers_ = true;
    std::jthread thread_;
};

tcp_relay::tcp_relay(std::uint16_t target) : state_{std::make_unique<state>(target)} {}
tcp_relay::~tcp_relay() = default;
std::uint16_t tcp_relay::port() const noexcept {
    return state_->port();
}
void tcp_relay::fall_silent() {
    state_->set(false, false);
}
void tcp_relay::swallow_answers() {
    state_->set(true, false);
}
void tcp_relay::resume() {
    state_->set(true, true);
}
void tcp_relay::cut() {
    state_->cut();
}

}  // namespace support
