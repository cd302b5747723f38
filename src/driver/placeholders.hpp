#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Text helpers shared by the drivers; compiled into each driver that needs them.
namespace rowlock::driver {

/// How a database library spells the n-th parameter.
enum class spelling : unsigned char {
    dollar,           ///< $n: libpq
    question,         ///< ?, by position: Connector/C++
    question_number,  ///< ?n: SQLite
    colon_name,       ///< :pn: SOCI
};

/// A statement in a driver's spelling.
struct rewritten {
    std::string text;
    /// Which parameter (0 = $1) each placeholder of `text` stands for, from left to right.
    std::vector<std::size_t> order;
    /// The greatest n of any $n: how many parameters the statement takes.
    std::size_t parameters = 0;

    /// @throws error errc::invalid_options unless exactly so many parameters are `given`.
    void require_parameters(std::size_t given) const;
};

/// Rewrites `$1` … `$n`, which may repeat and stand in any order. Literals, quoted identifiers and
/// comments, as sql/lexer.hpp finds them, are left as they are.
///
/// SOCI reads the text a second time and knows only '…' literals, `::` and `:=`. For it comments
/// are left out (optimizer hints and MySQL's executable comments stay).
/// @throws error errc::invalid_options for `$0`, a number over 65535, letters right behind a number
/// or a bare `?` where `?` means a parameter; errc::unsupported for text that SOCI would misread.
[[nodiscard]] rewritten rewrite_placeholders(std::string_view text, sql::dialect speaks,
                                             spelling wanted);

}  // namespace rowlock::driver
