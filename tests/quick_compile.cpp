// The source that a library of precompiled headers must have (quick_compile.cmake).
