#include "cli/serve/connections.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace rowlock::cli::serving {
namespace {

using clock = connection_state::clock;

/// Of one address. A reverse proxy has one for all its clients: 48 streams, and requests that are
/// answered at once.
constexpr std::size_t most_of_a_client = 64;
/// Of all.
constexpr std::size_t most_open = 192;
/// A client that has gone without a word acknowledges nothing for so long, in milliseconds.
constexpr int unacknowledged = 20'000;

/// A quarter of the descriptors that this process may have.
std::size_t share_of_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return most_open;
    return static_cast<std::size_t>(limit.rlim_cur / 4);
}

std::string address_of(int socket) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    // The functions of the system take any address by this type.
    if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "gone";
    const auto text = [&](std::size_t offset, std::size_t count) {
        std::string bytes(count, '\0');
        std::memcpy(bytes.data(), reinterpret_cast<const char*>(&peer) + offset, count);
        return bytes;
    };
    if (peer.ss_family == AF_INET) return text(offsetof(sockaddr_in, sin_addr), 4);
    constexpr std::size_t six = offsetof(sockaddr_in6, sin6_addr);
    const auto whole = text(six, 16);
    in6_addr address{};
    std::memcpy(&address, whole.data(), whole.size());
    return IN6_IS_ADDR_V4MAPPED(&address) ? whole.substr(12) : whole.substr(0, 8);
}

/// Whether what its thread waits for has come, or nothing more will come.
bool has_come(const connection_state& one) {
    pollfd watched{one.socket, one.awaited, 0};
    return poll(&watched, 1, 0) > 0;
}

clock::duration silence_of(const connection_state& one, clock::time_point now) {
    return one.waited + (now - one.since);
}

}  // namespace

connections::connections(std::size_t threads)
    : threads_{threads}, most_{std::min(most_open, share_of_descriptors())} {}

connections::pointer connections::admit(int socket) {
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof unacknowledged);
    auto made = std::make_shared<connection_state>(
        connection_state{socket, address_of(socket), clock::now()});
    const std::lock_guard lock{mutex_};
    open_.push_back(made);
    if (living_of(made->client) > most_of_a_client) end_longest_silent(made->client);
    make_room();
    if (ending_ || open_.size() > most_) end(made);
    return made->ended ? nullptr : made;
}

bool connections::take(const pointer& one) {
    const std::lock_guard lock{mutex_};
    one->taken = !one->ended;
    return one->taken;
}

void connections::begin_wait(const pointer& one, short what) {
    const std::lock_guard lock{mutex_};
    one->awaited = what;
    one->since = clock::now();
    make_room();
}

void connections::end_wait(const pointer& one) {
    const std::lock_guard lock{mutex_};
    one->waited = silence_of(*one, clock::now());
    one->awaited = 0;
}

void connections::close(const pointer& one) {
    {
        const std::lock_guard lock{mutex_};
        open_.remove(one);
    }
    ::shutdown(one->socket, SHUT_RDWR);
    ::close(one->socket);
}

void connections::end_all() {
    const std::lock_guard lock{mutex_};
    ending_ = true;
    for (auto each = open_.begin(); each != open_.end();) {
        const auto next = std::next(each);
        end(pointer{*each});
        each = next;
    }
}

std::size_t connections::living() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(open_, [](const auto& each) { return !each->ended; }));
}

std::size_t connections::living_of(const std::string& client) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        open_, [&](const auto& each) { return !each->ended && each->client == client; }));
}

void connections::make_room() {
    while (living() > threads_ && end_longest_silent({})) {
    }
}

bool connections::end_longest_silent(const std::string& client) {
    const auto now = clock::now();
    std::map<std::string, std::size_t> count;
    std::vector<pointer> silent;
    for (const auto& each : open_) {
        if (each->ended) continue;
        ++count[each->client];
        if (each->awaited != 0 && (client.empty() || each->client == client))
            silent.push_back(each);
    }
    std::ranges::stable_sort(silent, [&](const pointer& left, const pointer& right) {
        return std::pair{count[left->client], silence_of(*left, now)} >
               std::pair{count[right->client], silence_of(*right, now)};
    });
    const auto found =
        std::ranges::find_if(silent, [](const auto& each) { return !has_come(*each); });
    if (found == silent.end()) return false;
    end(*found);
    return true;
}

/// Its thread notices, and closes it; without one it is closed here.
void connections::end(const pointer& one) {
    if (one->ended) return;
    one->ended = true;
    ::shutdown(one->socket, SHUT_RDWR);
    if (one->taken) return;
    open_.remove(one);
    ::close(one->socket);
}

}  // namespace rowlock::cli::serving
