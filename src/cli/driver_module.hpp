#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>

/// A driver that is loaded when its database is requested, so that starts do not pay for the other
/// drivers' libraries. A module exports a driver_module named `rowlock_driver` and takes the core
/// from the executable that loads it.
namespace rowlock::cli {

struct driver_module {
    const char* version;  ///< of the rowlock it belongs to
    sql::connection_source (*open)(const std::string& url);
};

}  // namespace rowlock::cli

extern "C" const rowlock::cli::driver_module rowlock_driver;
