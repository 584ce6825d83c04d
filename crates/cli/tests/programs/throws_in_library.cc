// Exceptions that libstdc++ throws, or lets pass through its own frames, some of which catch and throw again.

#include <cstdio>
#include <fstream>
#include <istream>
#include <locale>
#include <stdexcept>
#include <streambuf>
#include <string>

struct Throws : std::streambuf {
    int_type underflow() override { throw 42; }
};

int main() {
    int caught = 0;
    try {
        std::string("x").at(5);
    } catch (const std::out_of_range &) {
        caught += 1;
    }
    try {
        std::locale("no such locale");
    } catch (const std::runtime_error &) {
        caught += 10;
    }
    try {
        std::ifstream file;
        file.exceptions(std::ios::failbit);
        file.open("/no such file");
    } catch (const std::ios_base::failure &) {
        caught += 100;
    }
    try {
        Throws buffer;
        std::istream stream(&buffer);
        stream.exceptions(std::ios::badbit);
        int number;
        stream >> number;
    } catch (int thrown) {
        caught += thrown == 42 ? 1000 : 0;
    }
    std::printf("caught %d\n", caught);
    return caught != 1111;
}
