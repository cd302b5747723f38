// The driver of another rowlock: it must not be called.
#include "cli/driver_module.hpp"

#include <cstdlib>

const rowlock::cli::driver_module rowlock_driver{
    "0.0.0", [](const std::string&) -> rowlock::sql::connection_source { std::abort(); }};
