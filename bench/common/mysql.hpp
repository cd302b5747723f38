#pragma once

#include <memory>
#include <string>

namespace sql {
class Connection;
}

namespace bench {

/// Connector/C++ itself.
[[nodiscard]] std::shared_ptr<::sql::Connection> connect_mysql(const std::string& url);

}  // namespace bench
