#include "support/tcp_relay.hpp"

#include "support/loopback.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace support {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::size_t most_kept = 1U << 20U;  // for one direction of one connection

void send_without_delay(int socket) {
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// The treatment of one direction.
struct treatment {
    bool held = false;
    bool dropped = false;
    std::chrono::milliseconds delay{0};
};

/// One direction of one connection.
struct flow {
    struct piece {
        std::string bytes;
        steady::time_point due;
    };
    int from = -1;
    int to = -1;
    bool over = false;  ///< `from` has closed
    bool held = false;  ///< only this connection
    std::deque<piece> kept;
    std::size_t size = 0;

    [[nodiscard]] bool reads() const { return !over && size < most_kept; }
};

struct connection {
    int number = 0;
    flow requests;
    flow answers;
    steady::time_point accepted{};
    bool spoke = false;   ///< the client has sent something
    bool asking = false;  ///< the last bytes came from the client
    bool doomed = false;
};

}  // namespace

class tcp_relay::state {
public:
    explicit state(std::uint16_t target)
        : target_{target},
          listener_{listening_socket(256, SOCK_NONBLOCK)},
          port_{port_of(listener_)} {
        if (::pipe2(wake_.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail_by_errno("pipe2");
        thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        thread_.request_stop();
        wake();
        thread_.join();
        for (const auto& each : connections_) close(each);
        ::close(listener_);
        ::close(wake_[0]);
        ::close(wake_[1]);
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }

    /// Makes a change under the lock, then wakes the thread.
    template <typename Change>
    void change(const Change& how) {
        {
            const std::lock_guard guard{mutex_};
            how(*this);
        }
        wake();
    }
    template <typename Change>
    void change(int number, const Change& how) {
        change([&](state& all) {
            for (auto& each : all.connections_) {
                if (each.number == number) how(each);
            }
        });
    }
    template <typename Change>
    void treat(direction which, const Change& how) {
        change([&](state& all) {
            if (which != direction::answers) how(all.requests_);
            if (which != direction::requests) how(all.answers_);
        });
    }

    void resume() {
        change([](state& all) {
            all.requests_ = {};
            all.answers_ = {};
            all.countdown_ = 0;
            all.answer_kept_ = false;
            for (auto& each : all.connections_) {
                each.requests.held = each.answers.held = false;
            }
        });
    }

    void cut(int number) {
        change([&](state& all) {
            for (auto& each : all.connections_) {
                if (number == 0 || each.number == number) doom(each);
            }
        });
    }

    void lead_to(std::uint16_t target) {
        change([&](state& all) { all.target_ = target; });
    }
    void refuse(bool new_ones) {
        change([&](state& all) { all.refuses_ = new_ones; });
    }
    void become(const link& how) {
        change([&](state& all) {
            all.link_ = how;
            all.random_.seed(how.seed);
        });
    }
    void alter_first(std::function<void(std::string&)> how) {
        change([&](state& all) { all.alter_first_ = std::move(how); });
    }
    void hold_answer(int n) {
        change([&](state& all) {
            all.countdown_ = n;
            all.answer_kept_ = false;
        });
    }
    bool holds_answer(std::chrono::milliseconds limit) {
        std::unique_lock lock{mutex_};
        return heard_.wait_for(lock, limit, [&] { return answer_kept_; });
    }

    [[nodiscard]] std::vector<int> connections() const {
        const std::lock_guard guard{mutex_};
        std::vector<int> numbers;
        for (const auto& each : connections_) {
            if (!each.doomed) numbers.push_back(each.number);
        }
        return numbers;
    }
    [[nodiscard]] counts counted() const {
        const std::lock_guard guard{mutex_};
        return counts_;
    }

private:
    void wake() const { [[maybe_unused]] const auto written = ::write(wake_[1], "x", 1); }

    static void close(const connection& each) {
        ::close(each.requests.from);
        ::close(each.answers.from);
    }

    /// Shuts both sides down at once. The thread that polls the descriptors closes them.
    static void doom(connection& each) {
        each.doomed = true;
        ::shutdown(each.requests.from, SHUT_RDWR);
        ::shutdown(each.answers.from, SHUT_RDWR);
    }

    /// The time until the thread must check without being woken, in milliseconds; -1: never.
    [[nodiscard]] static int pause_before(const std::vector<steady::time_point>& due) {
        if (due.empty()) return -1;
        const auto first = *std::min_element(due.begin(), due.end());
        return std::max(
            0, static_cast<int>(
                   std::chrono::ceil<std::chrono::milliseconds>(first - steady::now()).count()));
    }

    /// Adds the events to wait for on one direction: readable, or writable.
    void want(const flow& each, const treatment& how, std::vector<pollfd>& wanted,
              std::vector<steady::time_point>& due) const {
        wanted.push_back({each.reads() ? each.from : -1, POLLIN, 0});
        const bool flows = !how.held && !each.held && !each.kept.empty();
        const bool now = flows && each.kept.front().due <= steady::now();
        if (flows && !now) due.push_back(each.kept.front().due);
        wanted.push_back({now ? each.to : -1, POLLOUT, 0});
    }

    void run(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            std::vector<pollfd> wanted{{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
            std::vector<steady::time_point> due;
            std::size_t known = 0;
            {
                const std::lock_guard guard{mutex_};
                for (const auto& each : connections_) {
                    want(each.requests, requests_, wanted, due);
                    want(each.answers, answers_, wanted, due);
                }
                known = connections_.size();
            }
            if (::poll(wanted.data(), wanted.size(), pause_before(due)) < 0 && errno != EINTR) {
                return;
            }
            std::array<char, 64> drained{};
            while (::read(wake_[0], drained.data(), drained.size()) > 0) {
            }
            const std::lock_guard guard{mutex_};
            auto each = connections_.begin();  // only this thread adds and removes
            for (std::size_t i = 0; i < known; ++i, ++each) {
                const auto* events = &wanted[2 + 4 * i];
                if (events[0].revents != 0) hear(*each, each->requests);
                if (events[2].revents != 0) hear(*each, each->answers);
                if (events[1].revents != 0) pass(*each, each->requests, requests_);
                if (events[3].revents != 0) pass(*each, each->answers, answers_);
            }
            connections_.remove_if([](const connection& one) {
                const bool gone = one.doomed || spent(one.requests) || spent(one.answers);
                if (gone) close(one);
                return gone;
            });
            if (wanted[1].revents != 0) accept_one();
        }
    }

    /// Whether one side has closed, and the other has received all its bytes.
    static bool spent(const flow& one) { return one.over && one.kept.empty(); }

    void hear(connection& from, flow& one) {
        std::array<char, 16384> bytes{};
        const ssize_t got = ::read(one.from, bytes.data(), bytes.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) {
            one.over = true;
            return;
        }
        const auto size = static_cast<std::size_t>(got);
        const bool request = &one == &from.requests;
        (request ? counts_.request_bytes : counts_.answer_bytes) += size;
        if (request && !std::exchange(from.asking, true)) begin_exchange(from);
        if (!request) from.asking = false;
        const auto& how = request ? requests_ : answers_;
        if (how.dropped) return;
        const auto due = arrives(from, request) + how.delay;
        std::string piece{bytes.data(), size};
        if (request && !std::exchange(from.spoke, true) && alter_first_) alter_first_(piece);
        one.size += piece.size();
        one.kept.push_back({std::move(piece), due});
        if (!request && one.held && countdown_ < 0) {
            answer_kept_ = true;
            heard_.notify_all();
        }
        if (!how.held && !one.held && due <= steady::now()) pass(from, one, how);
    }

    /// The arrival of bytes that are read now. The client's half of the handshake takes a round
    /// trip, the server's half a round trip more.
    [[nodiscard]] steady::time_point arrives(const connection& from, bool request) {
        const auto now = steady::now();
        if (link_.round_trip == 0ms) return now;
        const auto open = from.accepted + link_.round_trip + (request ? 0ms : link_.round_trip / 2);
        auto at = std::max(now, open) + link_.round_trip / 2;
        std::bernoulli_distribution lost{link_.loss};
        for (auto again = link_.resend; lost(random_); again *= 2) at += again;
        return at;
    }

    void begin_exchange(connection& from) {
        ++counts_.exchanges;
        if (countdown_ <= 0 || --countdown_ > 0) return;
        countdown_ = -1;
        from.answers.held = true;
    }

    static void pass(connection& in, flow& one, const treatment& how) {
        while (!one.kept.empty() && !how.held && !one.held && !in.doomed) {
            auto& first = one.kept.front();
            if (first.due > steady::now()) return;
            const ssize_t sent =
                ::send(one.to, first.bytes.data(), first.bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (sent <= 0) {
                in.doomed = true;
                return;
            }
            one.size -= static_cast<std::size_t>(sent);
            first.bytes.erase(0, static_cast<std::size_t>(sent));
            if (first.bytes.empty()) one.kept.pop_front();
        }
    }

    void accept_one() {
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client < 0) return;
        const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(target_);
        if (refuses_ ||
            ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            ++counts_.refused;
            ::close(client);
            ::close(server);
            return;
        }
        ::fcntl(server, F_SETFL, O_NONBLOCK);
        send_without_delay(client);
        send_without_delay(server);
        connection made;
        made.number = static_cast<int>(++counts_.connections);
        made.accepted = steady::now();
        made.requests.from = made.answers.to = client;
        made.requests.to = made.answers.from = server;
        connections_.push_back(std::move(made));
    }

    std::uint16_t target_;
    int listener_;
    std::uint16_t port_;
    std::array<int, 2> wake_{};
    mutable std::mutex mutex_;
    std::condition_variable heard_;
    std::list<connection> connections_;
    treatment requests_;
    treatment answers_;
    link link_;
    std::function<void(std::string&)> alter_first_;
    std::mt19937 random_;
    bool refuses_ = false;
    int countdown_ = 0;  ///< exchanges until one is held back; -1: it is
    bool answer_kept_ = false;
    counts counts_;
    std::jthread thread_;
};

tcp_relay::tcp_relay(std::uint16_t target) : state_{std::make_unique<state>(target)} {}
tcp_relay::~tcp_relay() = default;

std::uint16_t tcp_relay::port() const noexcept {
    return state_->port();
}
void tcp_relay::lead_to(std::uint16_t target) {
    state_->lead_to(target);
}
void tcp_relay::resume() {
    state_->resume();
}
void tcp_relay::cut() {
    state_->cut(0);
}
void tcp_relay::hold(direction which) {
    state_->treat(which, [](treatment& how) { how.held = true; });
}
void tcp_relay::drop(direction which) {
    state_->treat(which, [](treatment& how) { how.dropped = true; });
}
void tcp_relay::delay(direction which, std::chrono::milliseconds time) {
    state_->treat(which, [&](treatment& how) { how.delay = time; });
}
void tcp_relay::become(const link& how) {
    state_->become(how);
}
void tcp_relay::alter_first(std::function<void(std::string&)> how) {
    state_->alter_first(std::move(how));
}
void tcp_relay::refuse(bool new_ones) {
    state_->refuse(new_ones);
}
void tcp_relay::hold_answer(int n) {
    state_->hold_answer(n);
}
bool tcp_relay::holds_answer(std::chrono::milliseconds limit) {
    return state_->holds_answer(limit);
}
std::vector<int> tcp_relay::connections() const {
    return state_->connections();
}
void tcp_relay::hold(int connection_number, direction which) {
    state_->change(connection_number, [&](connection& one) {
        if (which != direction::answers) one.requests.held = true;
        if (which != direction::requests) one.answers.held = true;
    });
}
void tcp_relay::resume(int connection_number) {
    state_->change(connection_number,
                   [](connection& one) { one.requests.held = one.answers.held = false; });
}
void tcp_relay::cut(int connection_number) {
    if (connection_number > 0) state_->cut(connection_number);
}
tcp_relay::counts tcp_relay::counted() const {
    return state_->counted();
}

}  // namespace support
