#include "driver/sqlite_path.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace contract {
namespace {

class private_folder {
public:
    private_folder() {
        path_ = (std::filesystem::temp_directory_path() / "rowlock-contract-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    }
    private_folder(const private_folder&) = delete;
    private_folder& operator=(const private_folder&) = delete;
    ~private_folder() {
        std::error_code ignored;
        if (::getpid() == process_) std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    pid_t process_ = ::getpid();
};

}  // namespace

std::string sqlite_path(const std::string& name) {
    static const private_folder folder;
    return folder.path() + "/" + name;
}

}  // namespace contract
