#pragma once

#include <rowlock/sql/connection.hpp>

#include <string_view>

namespace rowlock::driver {

/// Which of our drivers a URL, or a conninfo of libpq's, is for.
/// @throws error errc::invalid_url
[[nodiscard]] sql::dialect dialect_of_url(std::string_view url);

/// @throws error errc::unsupported: the build was configured without it.
[[noreturn]] void not_built(sql::dialect driver);

}  // namespace rowlock::driver
