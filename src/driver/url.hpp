#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Parses database URLs for drivers whose library understands none. No error ever quotes a URL or a
/// value from it: they may hold a password.
namespace rowlock::driver {

struct url_parameter {
    std::string name;
    std::string value;
};

struct url_host {
    std::string host;        ///< an IPv6 address has no brackets here
    std::uint16_t port = 0;  ///< 0 = none given
};

/// `scheme://user:password@host:port,host:port/database?name=value&…`, percent-decoded.
struct url : url_host {
    std::string scheme;
    std::string user;
    std::string password;
    std::vector<url_host> more_hosts;  ///< after the first
    std::string database;
    std::vector<url_parameter> parameters;  ///< in the order given; no name twice
};

/// @throws error errc::invalid_url, saying what is wrong and where, but never the text.
[[nodiscard]] url parse_url(std::string_view text);

/// @throws error errc::invalid_url for % without two hexadecimal digits, and for %00.
[[nodiscard]] std::string percent_decoded(std::string_view text);

/// `name=value&name=value`, percent-decoded.
/// @throws error errc::invalid_url for a name that is missing or repeated, or has no =.
[[nodiscard]] std::vector<url_parameter> parse_parameters(std::string_view text);

/// Takes `rowlock_schema` and `rowlock_prefix` out of a URL's parameters: no database library knows
/// them.
/// @throws error errc::invalid_url for an empty or unusable name, or a schema outside PostgreSQL
[[nodiscard]] sql::table_names take_table_names(std::vector<url_parameter>& from,
                                                sql::dialect which);

/// @throws error errc::invalid_url that names the parameter: unknown to `scheme`'s driver …
[[noreturn]] void refuse_parameter(std::string_view scheme, const url_parameter& unknown);

/// … or with a value that is not one of `wanted`, such as "true or false".
[[noreturn]] void refuse_value(const url_parameter& wrong, std::string_view wanted);

}  // namespace rowlock::driver
