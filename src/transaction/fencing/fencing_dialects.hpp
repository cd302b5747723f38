#pragma once

#include "transaction/fencing/fencing.hpp"

/// The implementations of fencing; others call make_fencing().
namespace rowlock::detail {

[[nodiscard]] std::unique_ptr<const fencing> make_postgresql_fencing(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const fencing> make_mysql_fencing(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const fencing> make_sqlite_fencing(
    const sql::statement_set& statements);

}  // namespace rowlock::detail
