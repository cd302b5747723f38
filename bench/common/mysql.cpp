#include "common/mysql.hpp"

#include "driver/url.hpp"

#include <cppconn/connection.h>
#include <cppconn/driver.h>

namespace bench {

std::shared_ptr<::sql::Connection> connect_mysql(const std::string& url) {
    const auto server = rowlock::driver::parse_url(url);
    ::sql::ConnectOptionsMap options;
    options["hostName"] =
        "tcp://" + server.host + ":" + std::to_string(server.port ? server.port : 3306);
    for (const auto& parameter : server.parameters) {
        if (parameter.name == "socket") options["hostName"] = "unix://" + parameter.value;
    }
    options["userName"] = server.user;
    options["password"] = server.password;
    options["schema"] = server.database;
    return std::shared_ptr<::sql::Connection>{::get_driver_instance()->connect(options)};
}

}  // namespace bench
