/* How Spark writes the file of a new version of a Delta table: none replaces another, on a disk and on S3.
 *
 * Belongs here: that one step, for the schemes of which Delta's own classes look first and write then. Does not belong: reading a log, which
 * Delta does, and the commits of this project's own process (delta/log.py).
 *
 * The compiler that Spark contains makes a JAR of it (log_store.py). The protocol of these classes is that of io.delta.storage.LogStore.
 */
package incremental_assets

import java.io.{ByteArrayOutputStream, FileNotFoundException, IOException}
import java.lang.{Boolean => JBoolean}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, Files, Paths}
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.util.{Arrays, Iterator => JIterator, UUID}

import io.delta.storage.{HadoopFileSystemLogStore, HDFSLogStore}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.io.IOUtils

private object Lines {
  def bytes(actions: JIterator[String]): Array[Byte] = {
    val text = new ByteArrayOutputStream
    actions.forEachRemaining(action => text.write((action + "\n").getBytes(UTF_8)))
    text.toByteArray
  }
}

/** On S3: a put with the condition If-None-Match. */
class StoreLogStore(configuration: Configuration) extends HadoopFileSystemLogStore(configuration) {
  override def write(path: Path, actions: JIterator[String], overwrite: JBoolean, conf: Configuration): Unit = {
    val content = Lines.bytes(actions)
    val store = path.getFileSystem(conf)
    try {
      // The put itself is conditional. Without the flag "overwrite", the connector would look first by requests of its own.
      val created = store.createFile(path).create().overwrite(true)
      if (!overwrite) created.must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true)
      val file = created.build()
      file.write(content)
      file.close()
    } catch {
      // Also where the answer was lost: the request is sent again, and refused. The transaction's id in the content is that of one writer.
      case error: IOException if !overwrite =>
        found(store, path) match {
          case Some(other) if Arrays.equals(other, content) => ()
          case Some(_) => throw new FileAlreadyExistsException(path.toString)
          case None => throw error
        }
    }
  }

  override def isPartialWriteVisible(path: Path, conf: Configuration): JBoolean = false

  private def found(store: FileSystem, path: Path): Option[Array[Byte]] =
    try {
      val file = store.open(path)
      try Some(IOUtils.readFullyToByteArray(file))
      finally file.close()
    } catch {
      case _: FileNotFoundException => None
    }
}

/** On a disk: the complete file gets its name by a hard link, which never replaces. */
class DiskLogStore(configuration: Configuration) extends HDFSLogStore(configuration) {
  override def write(path: Path, actions: JIterator[String], overwrite: JBoolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf)
    else {
      val named = Paths.get(path.toUri.getPath)
      val unfinished = named.resolveSibling(s".${UUID.randomUUID}.tmp")
      try {
        val file = FileChannel.open(unfinished, CREATE_NEW, WRITE)
        try {
          val content = ByteBuffer.wrap(Lines.bytes(actions))
          while (content.hasRemaining) file.write(content)
          file.force(true)
        } finally file.close()
        try Files.createLink(named, unfinished)
        catch {
          // Else a server of files has made the link, and its answer was lost.
          case _: FileAlreadyExistsException if Files.isSameFile(named, unfinished) => ()
        }
      } finally Files.deleteIfExists(unfinished)
    }
}
