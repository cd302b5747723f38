#include "support/scripted_mysql.hpp"

#include "support/loopback.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace support {
namespace {

int listening_everywhere() {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) fail_by_errno("socket");
    sockaddr_in address = loopback(0);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail_by_errno("bind");
    }
    if (::listen(made, 8) != 0) fail_by_errno("listen");
    return made;
}

using scripts = std::vector<std::vector<std::string>>;

scripts joined(std::vector<std::string> first, scripts more) {
    more.insert(more.begin(), std::move(first));
    return more;
}

}  // namespace

std::string mysql_packet(char number, std::string_view payload) {
    std::string made{static_cast<char>(payload.size() & 0xffU),
                     static_cast<char>(payload.size() >> 8U), '\0', number};
    return made.append(payload);
}

std::string mysql_greeting(std::string_view plugin, bool offers_tls) {
    std::string text{"\x0a"};
    text += "8.0.0";
    // Long passwords, a database, protocol 4.1, a scramble of twenty bytes; plugins.
    text += std::string{"\0\x01\0\0\0scramble\0\x09\x82\x21\x02\0\x08\0\x15", 22};
    if (offers_tls) text[text.size() - 7] = static_cast<char>(0x8a);
    text += std::string(10, '\0') + "twelve bytes";
    text += '\0';
    return mysql_packet(0, text.append(plugin) + '\0');
}

std::string mysql_refusal(std::uint16_t number, std::string_view text) {
    std::string payload{'\xff', static_cast<char>(number & 0xffU), static_cast<char>(number >> 8U)};
    return mysql_packet(0, payload.append(text));
}

scripted_mysql::scripted_mysql(std::vector<std::string> script,
                               std::vector<std::vector<std::string>> more)
    : scripts_{joined(std::move(script), std::move(more))},
      socket_{listening_everywhere()},
      port_{port_of(socket_)},
      thread_{[this] { serve(); }} {}

scripted_mysql::~scripted_mysql() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
}

std::string scripted_mysql::received() const {
    const std::lock_guard lock{mutex_};
    return received_;
}

void scripted_mysql::serve() {
    for (;;) {
        const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) return;
        const auto& script = scripts_[static_cast<std::size_t>(clients_++) % scripts_.size()];
        for (std::size_t line = 0; line < script.size(); ++line) {
            if (line > 0 && !hear(client)) break;
            (void)::send(client, script[line].data(), script[line].size(), MSG_NOSIGNAL);
        }
        ::close(client);
    }
}

bool scripted_mysql::hear(int client) {
    std::array<char, 4096> buffer{};
    const auto size = ::recv(client, buffer.data(), buffer.size(), 0);
    if (size <= 0) return false;
    const std::lock_guard lock{mutex_};
    received_.append(buffer.data(), static_cast<std::size_t>(size));
    return true;
}

}  // namespace support
