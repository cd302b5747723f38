#include "support/mariadb_home.hpp"

#include "support/servers.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace support {
namespace {

std::string find_program(std::string_view name) {
    std::string places = "/usr/sbin:/usr/libexec:/usr/bin:/usr/local/sbin:";
    if (const char* path = getenv("PATH")) places = std::string{path} + ":" + places;
    for (std::size_t at = 0; at < places.size();) {
        const auto end = std::min(places.find(':', at), places.size());
        auto file = places.substr(at, end - at).append("/").append(name);
        if (access(file.c_str(), X_OK) == 0) return file;
        at = end + 1;
    }
    return {};
}

std::string users(const std::string& password) {
    return "set password for root@localhost = password('" + password +
           "');\ncreate or replace user rowlock@'%' identified by '" + password +
           "';\ngrant all on *.* to rowlock@'%' with grant option;\n"
           "create database if not exists rowlock character set utf8mb4;\n";
}

}  // namespace

std::unique_ptr<mariadb_home> mariadb_home::install() {
    const auto program = find_program("mariadbd");
    const auto installer = find_program("mariadb-install-db");
    if (program.empty() || installer.empty()) {
        miss_program("a MariaDB server", "mariadb-server-core mariadb-client-core");
        return nullptr;
    }
    std::unique_ptr<mariadb_home> made{new mariadb_home};
    made->program_ = program;
    made->password_ = random_password();
    const server_folder& folder = made->folder_;
    // A tmpdir of its own: a server that starts removes what others keep in theirs.
    if (run_as_server({installer, "--no-defaults", "--datadir=" + folder.path() + "/data",
                       "--tmpdir=" + folder.path(), "--auth-root-authentication-method=normal",
                       "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M"},
                      folder, "install.log") != 0) {
        throw std::runtime_error{"no data folder for MariaDB: " + folder.read("install.log")};
    }
    folder.write("init.sql", users(made->password_));
    return made;
}

std::vector<std::string> mariadb_home::command(std::uint16_t port) const {
    const std::string& home = folder_.path();
    return {program_,
            "--no-defaults",
            "--datadir=" + home + "/data",
            "--port=" + std::to_string(port),
            "--bind-address=127.0.0.1",
            "--socket=" + home + "/socket",
            "--pid-file=" + home + "/pid",
            "--init-file=" + home + "/init.sql",
            "--tmpdir=" + home,
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M"};
}

std::string mariadb_home::url(std::uint16_t port) const {
    return "mysql://rowlock:" + password_ + "@127.0.0.1:" + std::to_string(port) + "/rowlock";
}

}  // namespace support
