#pragma once

#include "driver/driver_fixture.hpp"

#include <tuple>
#include <utility>

// Every driver that this build has, as a tuple for doctest's templates.
#ifdef ROWLOCK_HAS_POSTGRESQL
#include "driver/libpq_fixture.hpp"
#endif
#ifdef ROWLOCK_HAS_MYSQL
#include "driver/connector_cpp_fixture.hpp"
#endif
#ifdef ROWLOCK_HAS_SQLITE
#include "driver/sqlite_fixture.hpp"
#endif
#ifdef ROWLOCK_HAS_SOCI
#include "driver/soci_fixtures.hpp"
#endif

namespace contract {

using driver_fixtures = decltype(std::tuple_cat(
#ifdef ROWLOCK_HAS_POSTGRESQL
    std::tuple<libpq_fixture>{},
#endif
#ifdef ROWLOCK_HAS_MYSQL
    std::tuple<connector_cpp_fixture>{},
#endif
#ifdef ROWLOCK_HAS_SQLITE
    std::tuple<sqlite_fixture>{},
#endif
#ifdef ROWLOCK_HAS_SOCI
    std::tuple<soci_postgresql_fixture, soci_mysql_fixture, soci_sqlite3_fixture>{},
#endif
    std::tuple<>{}));

}  // namespace contract
