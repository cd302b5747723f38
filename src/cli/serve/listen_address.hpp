#pragma once

#include <string>

namespace rowlock::cli::serving {

/// Where the server listens.
struct listen_address {
    std::string host;  ///< an IPv4 or IPv6 address, without brackets
    int port = 0;      ///< 0: any free one
    bool loopback = true;

    /// As in a URL: "127.0.0.1:9643", "[::1]:9643".
    [[nodiscard]] std::string text(int port) const;
};

/// "PORT", "ADDRESS:PORT", "[ADDRESS]:PORT" or "localhost:PORT". No other name: what it stands for
/// could change.
/// @throws failure `usage`
[[nodiscard]] listen_address parse_listen_address(const std::string& text);

/// Whether a Host header names this machine by a loopback address or as localhost. A page of
/// another site that had its own name resolve to 127.0.0.1 says that name here.
[[nodiscard]] bool is_loopback_host(const std::string& header);

}  // namespace rowlock::cli::serving
