#include "common/mysql.hpp"

#include "driver/url.hpp"

#include <cppconn/connection.h>
#include <cppconn/driver.h>

namespace bench {

std::shared_ptr<::sql::Connection> connect_mysql(const std::string& text) {
    const auto url = rowlock::driver::parse_url(text);
    ::sql::ConnectOptionsMap options;
    options["hostName"] = "tcp://" + url.host + ":" + std::to_string(url.port ? url.port : 3306);
    for (const auto& parameter : url.parameters) {
        if (parameter.name == "socket") options["hostName"] = "unix://" + parameter.value;
    }
    options["userName"] = url.user;
    options["password"] = url.password;
    options["schema"] = url.database;
    return std::shared_ptr<::sql::Connection>{::get_driver_instance()->connect(options)};
}

}  // namespace bench
