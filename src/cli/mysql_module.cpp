#include "cli/driver_module.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/version.hpp>

const rowlock::cli::driver_module rowlock_driver{
    rowlock::version_string, [](const std::string& url) { return rowlock::mysql::open(url); }};
