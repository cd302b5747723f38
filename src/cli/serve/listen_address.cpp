#include "cli/serve/listen_address.hpp"

#include "cli/exit_code.hpp"
#include "cli/number.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace rowlock::cli::serving {
namespace {

[[noreturn]] void refuse_address(const std::string& text) {
    throw failure{usage, fmt::format("--listen {}: give ADDRESS:PORT, such as 127.0.0.1:9643 or "
                                     "[::1]:9643",
                                     text)};
}

/// Whether it is one, and of this machine alone; nullopt if it is no address.
std::optional<bool> is_loopback(const std::string& address) {
    in_addr four{};
    if (inet_pton(AF_INET, address.c_str(), &four) == 1) {
        constexpr unsigned loopback_network = 127;
        return (ntohl(four.s_addr) >> 24) == loopback_network;
    }
    in6_addr six{};
    if (inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six) != 0;
    return std::nullopt;
}

/// What stands before the last colon, without brackets, and what stands behind it.
std::pair<std::string, std::string> split(const std::string& text) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos) return {"", text};
    std::string host = text.substr(0, colon);
    const bool brackets = host.starts_with('[') && host.ends_with(']');
    if (brackets) host = host.substr(1, host.size() - 2);
    if (!brackets && host.find(':') != std::string::npos) return {text, ""};
    return {std::move(host), text.substr(colon + 1)};
}

}  // namespace

std::string listen_address::text(int at) const {
    const bool six = host.find(':') != std::string::npos;
    return six ? fmt::format("[{}]:{}", host, at) : fmt::format("{}:{}", host, at);
}

listen_address parse_listen_address(const std::string& text) {
    auto [host, port] = split(text);
    listen_address found;
    const auto number = to_number(port);
    constexpr int last_port = 65535;
    if (!number || *number < 0 || *number > last_port) refuse_address(text);
    found.port = static_cast<int>(*number);
    const bool only_port = text.find(':') == std::string::npos;
    found.host = only_port || host == "localhost" ? "127.0.0.1" : host;
    const auto loopback = is_loopback(found.host);
    if (!loopback) refuse_address(text);
    found.loopback = *loopback;
    return found;
}

bool is_loopback_host(const std::string& header) {
    auto [host, port] = split(header);
    if (header.find(':') == std::string::npos || header.ends_with(']')) {
        host = header;
        if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    }
    return host == "localhost" || is_loopback(host).value_or(false);
}

}  // namespace rowlock::cli::serving
