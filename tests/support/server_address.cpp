#include "support/server_address.hpp"

#include <regex>
#include <stdexcept>

namespace contract {

std::string server_address::url() const {
    return scheme + "://" + user + ":" + password + "@" + host + ":" + std::to_string(port) + "/" +
           database;
}

server_address address_of(support::server which) {
    const std::string url = support::url_of(which).value_or("");
    const std::regex form{R"((\w+)://([^:@/]+):([^@/]*)@([^:/@]+):(\d+)/([^?]*)(\?.*)?)"};
    std::smatch found;
    if (!std::regex_match(url, found, form)) {
        throw std::runtime_error{
            "a test server's URL is not scheme://user:password@host:port/database"};
    }
    return {.scheme = found[1],
            .user = found[2],
            .password = found[3],
            .host = found[4],
            .port = static_cast<std::uint16_t>(std::stoi(found[5])),
            .database = found[6]};
}

}  // namespace contract
