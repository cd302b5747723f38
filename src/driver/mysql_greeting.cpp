#include "driver/mysql_greeting.hpp"

#include "driver/own_socket.hpp"
#include "driver/refusal.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/classify.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <memory>
#include <system_error>
#include <thread>

namespace rowlock::driver {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Limit in bytes. A greeting has about a hundred, an error at most 512 of text.
constexpr std::size_t longest_greeting = 4096;
// How long to wait for the server to hang up, which it does at once.
constexpr auto patience_at_the_end = 200ms;

// The client library's numbers for these errors.
constexpr int cannot_connect = 2002;
constexpr int unknown_host = 2005;
constexpr int lost_connection = 2013;

[[noreturn]] void unreachable(int number, std::string message) {
    throw refusal(errc::database_unreachable,
                  {.sqlstate = {}, .native_code = number, .message = std::move(message)});
}

[[noreturn]] void no_mysql() {
    throw error{errc::database_unreachable,
                "what answers there is neither MySQL nor MariaDB: check host and port"};
}

std::string reason(int error_number) {
    return std::error_code{error_number, std::generic_category()}.message();
}

struct free_addresses {
    void operator()(addrinfo* first) const noexcept { ::freeaddrinfo(first); }
};
using addresses = std::unique_ptr<addrinfo, free_addresses>;

addresses addresses_of(const std::string& host, std::uint16_t port, sql::deadline until) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_protocol = IPPROTO_TCP;
    for (auto pause = 1ms;; pause *= 2) {
        addrinfo* first = nullptr;
        const int failed =
            ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first);
        if (failed == 0) return addresses{first};
        if (failed != EAI_AGAIN || steady_clock::now() + pause >= until) {
            unreachable(unknown_host, "unknown host '" + host + "': " + ::gai_strerror(failed));
        }
        std::this_thread::sleep_for(pause);
    }
}

bool ready(const descriptor& socket, short event, sql::deadline until) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd wanted{.fd = socket.number(), .events = event, .revents = 0};
        const int found =
            ::poll(&wanted, 1, static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX)));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    }
}

// Returns 0 or an errno value.
int connect(const descriptor& socket, const addrinfo& to, sql::deadline until) {
    if (socket.number() < 0) return errno;
    if (::connect(socket.number(), to.ai_addr, to.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!ready(socket, POLLOUT, until)) throw not_connected();
    int failed = 0;
    socklen_t size = sizeof failed;
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0) return errno;
    return failed;
}

// Reads `size` bytes, or fewer if the server closes first.
std::string read(const descriptor& socket, std::size_t size, sql::deadline until) {
    std::string heard(size, '\0');
    std::size_t count = 0;
    while (count < size) {
        if (!ready(socket, POLLIN, until)) throw not_connected();
        const auto more = ::recv(socket.number(), heard.data() + count, size - count, 0);
        if (more < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (more < 0) unreachable(lost_connection, "connection lost: " + reason(errno));
        if (more == 0) break;
        count += static_cast<std::size_t>(more);
    }
    heard.resize(count);
    return heard;
}

std::string first_packet(const descriptor& socket, sql::deadline until) {
    constexpr std::size_t header_size = 4;
    const std::string header = read(socket, header_size, until);
    if (header.empty()) {
        unreachable(lost_connection, "the server hung up before it had said anything");
    }
    if (header.size() < header_size) no_mysql();
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(header[i]); };
    const std::size_t size = byte(0) | std::size_t{byte(1)} << 8U | std::size_t{byte(2)} << 16U;
    if (size == 0 || size > longest_greeting || byte(3) != 0) no_mysql();
    std::string payload = read(socket, size, until);
    if (payload.size() < size) no_mysql();
    return payload;
}

void hang_up(const descriptor& socket, sql::deadline until) noexcept {
    ::shutdown(socket.number(), SHUT_WR);
    until = std::min<sql::deadline>(until, steady_clock::now() + patience_at_the_end);
    std::array<char, 512> rest{};
    while (ready(socket, POLLIN, until)) {
        const auto more = ::recv(socket.number(), rest.data(), rest.size(), 0);
        if (more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR)) return;
    }
}

std::string numeric(const addrinfo& from) {
    std::array<char, NI_MAXHOST> text{};
    const int failed = ::getnameinfo(from.ai_addr, from.ai_addrlen, text.data(), text.size(),
                                     nullptr, 0, NI_NUMERICHOST);
    if (failed != 0) unreachable(unknown_host, ::gai_strerror(failed));
    return text.data();
}

[[noreturn]] void turned_away(std::string_view payload) {
    if (payload.size() < 3) no_mysql();
    error::server_report report;
    report.native_code =
        static_cast<unsigned char>(payload[1]) | static_cast<unsigned char>(payload[2]) << 8U;
    payload.remove_prefix(3);
    constexpr std::size_t marked_state = 6;
    if (payload.starts_with('#') && payload.size() >= marked_state) {
        report.sqlstate = payload.substr(1, marked_state - 1);
        payload.remove_prefix(marked_state);
    }
    report.message = payload;
    const errc kind = sql::classify_mysql(report.native_code);
    throw refusal(kind, std::move(report));
}

}  // namespace

bool offers_tls(std::string_view payload) {
    constexpr char turns_away = '\xff';
    constexpr char protocol = 10;
    constexpr std::size_t before_flags = 4 + 8 + 1;  // thread, first part of the scramble, zero
    constexpr unsigned tls = 0x08;                   // of the second byte of the flags
    if (payload.starts_with(turns_away)) turned_away(payload);
    if (!payload.starts_with(protocol)) no_mysql();
    const auto end_of_version = payload.find('\0');
    if (end_of_version == std::string_view::npos) no_mysql();
    const std::string_view rest = payload.substr(end_of_version + 1);
    if (rest.size() < before_flags + 2) no_mysql();
    return (static_cast<unsigned char>(rest[before_flags + 1]) & tls) != 0;
}

mysql_greeting look_at_mysql(const std::string& host, std::uint16_t port, sql::deadline until) {
    const addresses all = addresses_of(host, port, until);
    int failed = 0;
    for (const addrinfo* each = all.get(); each != nullptr; each = each->ai_next) {
        const descriptor socket{::socket(
            each->ai_family, each->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, each->ai_protocol)};
        failed = connect(socket, *each, until);
        if (failed != 0) continue;
        const std::string payload = first_packet(socket, until);
        hang_up(socket, until);
        return {.offers_tls = offers_tls(payload), .address = numeric(*each)};
    }
    unreachable(cannot_connect, "cannot connect to '" + host + "': " + reason(failed));
}

}  // namespace rowlock::driver
