/* tests/standin/library_types.h - cudaDataType_t, the dtypes of libraries. */
#ifndef TESTS_STANDIN_LIBRARY_TYPES_H
#define TESTS_STANDIN_LIBRARY_TYPES_H

enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,
};
enum libraryPropertyType_t {
    MAJOR_VERSION,
    MINOR_VERSION,
    PATCH_LEVEL,
};
#ifndef __cplusplus
typedef enum cudaDataType_t cudaDataType_t;
typedef enum libraryPropertyType_t libraryPropertyType_t;
#endif
typedef enum cudaDataType_t cudaDataType;
typedef enum libraryPropertyType_t libraryPropertyType;

#endif
