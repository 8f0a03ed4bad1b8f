from checkpoint_spark.sources.parquet import *
from checkpoint_spark.sources.files import SourceFiles
import checkpoint_spark.sources.parquet as p
def reader_for(source, storage):
    return p.ParquetReader(source, SourceFiles(storage))
