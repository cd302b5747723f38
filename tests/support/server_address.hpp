#pragma once

#include "support/servers.hpp"

#include <cstdint>
#include <string>

namespace contract {

/// The parts of a test server's URL, `scheme://user:password@host:port/database`.
struct server_address {
    std::string scheme;
    std::string user;
    std::string password;
    std::string host;
    std::uint16_t port = 0;
    std::string database;

    [[nodiscard]] std::string url() const;
};

/// @throws std::runtime_error if the server is missing (support::url_of) or its URL has another
/// form
[[nodiscard]] server_address address_of(support::server which);

}  // namespace contract
